package stock

import "time"

// TokenAsk asks for tokens of one bucket of a limit that all replicas share. The first fields are the question, the others the answer.
type TokenAsk struct {
	Limit string   // name of the limit
	Key   [16]byte // what the bucket is of, hashed: the same on every replica
	Rate  float64  // tokens a second that the bucket gains, above 0 … 1e9
	Burst int64    // tokens of a full bucket, 1 … 1e9
	Spent int64    // tokens to charge that were spent without asking, 0 … Burst of any replica; the bucket may fall below 0 by them
	Want  int64    // tokens wanted besides, 0 … 1e9

	Granted int64         // 0 … Want; they are the asker's now and never go back
	Left    int64         // whole tokens in the bucket afterwards; negative: debt
	Wait    time.Duration // until the bucket holds a token again if nobody takes one; 0: it does; at most an hour
	Err     error         // ErrNotExecuted or ErrUnknown; unknown may have been charged
}
