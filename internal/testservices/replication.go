package testservices

import "fmt"

// HoldReplicas cuts a master off from its replicas, so that they keep what they have while it goes on: they may ask to follow it and are
// refused. A restart forgets it.
func (r *Redis) HoldReplicas() error {
	if _, err := r.Command("ACL", "SETUSER", "default", "-psync", "-sync"); err != nil {
		return err
	}
	_, err := r.Command("CLIENT", "KILL", "TYPE", "replica")
	return err
}

// LetReplicas ends HoldReplicas.
func (r *Redis) LetReplicas() error {
	_, err := r.Command("ACL", "SETUSER", "default", "+@all")
	return err
}

// revive starts what was killed, resumes what was paused and lets replicas follow.
func revive(nodes []*Redis) error {
	for _, n := range nodes {
		if !n.Running() {
			n.Start()
		}
		n.Resume()
		if err := n.LetReplicas(); err != nil {
			return err
		}
	}
	return nil
}

// followsOne fails unless a node follows one of the masters.
func (r *Redis) followsOne(masters []*Redis) error {
	if err := r.wantInfo("replication", "master_link_status:up"); err != nil {
		return err
	}
	for _, m := range masters {
		if r.wantInfo("replication", "master_port:"+m.port()) == nil {
			return nil
		}
	}
	return fmt.Errorf("%s follows none of the masters", r.Addr)
}
