package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/stockgate/stockgate/stock"
)

// ErrAdmissionVersion says that the database has the version that was named with other content: raise admission_version. Nothing was done.
var ErrAdmissionVersion = errors.New("admission_version is taken")

// admissionTries bounds how often StoreAdmission looks again because another replica was faster. Each time a version came in between.
const admissionTries = 20

// Admission is the newest stored admission, the one that every replica uses. Version 0: none is stored yet.
func (s *Store) Admission(ctx context.Context) (stock.Admission, error) {
	var newest stock.Admission
	err := s.read(ctx, func(c *conn) (err error) {
		newest, err = s.newestAdmission(c)
		return err
	})
	return newest, err
}

func (s *Store) newestAdmission(c *conn) (stock.Admission, error) {
	var a stock.Admission
	err := c.row(s.d.expand(`SELECT version, content FROM {admission} ORDER BY version DESC LIMIT 1`), nil, &a.Version, &a.Content)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return a, err
}

// StoreAdmission offers content, and gives what all replicas use from then on. seen: content is older than that and is not used; say so
// in the log. Contents are compared byte for byte. Any number of replicas may offer at once: one stores, all get the same.
//
// version 0 is automatic: content that the database has never seen becomes the newest version + 1, so a replica that starts late with
// an old file does not bring it back. A version above 0 decides by itself: above the newest it is stored, even with content seen
// before; below, content is old; the newest with other content is ErrAdmissionVersion.
func (s *Store) StoreAdmission(ctx context.Context, content string, version int64) (current stock.Admission, seen bool, err error) {
	if version < 0 || !storable(content) {
		return current, false, badMember("admission version %d: it must be at least 0 and the content UTF-8 without NUL", version)
	}
	err = s.inTx(ctx, func(c *conn) error {
		for range admissionTries {
			var done bool
			if current, seen, done, err = s.offer(c, content, version); err != nil || done {
				return err
			}
		}
		return errRaced("admission")
	})
	if err != nil {
		return stock.Admission{}, false, err
	}
	return current, seen, nil
}

// offer looks what is stored, and stores content if it is new. Not done: another replica stored something in between. It waits for
// a replica that is about to store the same version.
func (s *Store) offer(c *conn, content string, version int64) (current stock.Admission, seen, done bool, err error) {
	newest, err := s.newestAdmission(c)
	if err != nil {
		return newest, false, false, err
	}
	same := newest.Version > 0 && newest.Content == content
	switch {
	case version == newest.Version && version > 0 && !same:
		return newest, false, false, notExecuted(fmt.Errorf("%w: admission_version is %d, which the database has with other content: raise it",
			ErrAdmissionVersion, version))
	case version < newest.Version && version > 0, version == 0 && same, version == newest.Version && same:
		return newest, !same, true, nil
	}
	if version == 0 {
		last, err := s.lastAdmission(c, content)
		if err != nil || last > 0 {
			return newest, true, last <= newest.Version, err // above it: another replica stored it just now
		}
		version = newest.Version + 1
	}
	n, err := c.count(s.d.expand(`INSERT INTO {admission} (version, content) VALUES ($1, $2) ON CONFLICT (version) DO NOTHING`), version, content)
	if err != nil || n == 0 {
		return newest, false, false, err
	}
	newest, err = s.newestAdmission(c) // another replica may have stored a higher version since
	return newest, false, newest.Version == version, err
}

// lastAdmission is the highest version that content was stored as, 0 if it never was.
func (s *Store) lastAdmission(c *conn, content string) (int64, error) {
	var version int64
	err := c.row(s.d.expand(`SELECT COALESCE(max(version), 0) FROM {admission} WHERE content = $1`), []any{content}, &version)
	return version, err
}
