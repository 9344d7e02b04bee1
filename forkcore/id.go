package forkcore

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
)

// Shards is the number of hash tags that all session keys are spread over.
const Shards = 16

// Entropy is the randomness of a fresh id; whoever makes an id supplies it,
// because this package reads no random source.
type Entropy [10]byte

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

var idPattern = regexp.MustCompile(`^(ses|run|dsp)_(0[0-9]|1[0-5])[a-z2-7]{16}$`)

// NewSessionID makes a session id, "ses_" + two shard digits + 16 characters.
// The shard follows from the entropy.
func NewSessionID(e Entropy) string {
	sum := sha256.Sum256(e[:])
	return formatID("ses", int(sum[0])%Shards, e)
}

// NewRunID makes the id of a main turn in the shard of its session.
func NewRunID(sessionID string, e Entropy) (string, error) {
	shard, err := ShardOf(sessionID)
	if err != nil {
		return "", err
	}
	return formatID("run", shard, e), nil
}

// NewDispatchID makes the id of a dispatch by a person or the API.
func NewDispatchID(sessionID string, e Entropy) (string, error) {
	shard, err := ShardOf(sessionID)
	if err != nil {
		return "", err
	}
	return formatID("dsp", shard, e), nil
}

// ModelDispatchID derives the id of the dispatch that the assistant message
// at seq of an agent's log asks for: the session's id names the main log, a
// fork's its own. Deriving it makes launching idempotent: a second executor
// that replays the log names the same dispatch.
func ModelDispatchID(agentID string, seq int64) (string, error) {
	shard, err := ShardOf(agentID)
	if err != nil {
		return "", err
	}
	return formatID("dsp", shard, derive(agentID, uint64(seq))), nil
}

// ChildRunID derives the id of the index-th child of a dispatch. Child ids
// stand in the parent's bytes, so they must not change when a launch is
// repeated after a crash.
func ChildRunID(dispatchID string, index int) (string, error) {
	shard, err := ShardOf(dispatchID)
	if err != nil {
		return "", err
	}
	return formatID("run", shard, derive(dispatchID, uint64(index))), nil
}

// ShardOf reads the shard number, 0 to Shards-1, out of a session, run or
// dispatch id. A string that is no such id is ErrBadID.
func ShardOf(id string) (int, error) {
	m := idPattern.FindStringSubmatch(id)
	if m == nil {
		return 0, fmt.Errorf("%w: %q", ErrBadID, id)
	}
	return strconv.Atoi(m[2])
}

func formatID(prefix string, shard int, e Entropy) string {
	return fmt.Sprintf("%s_%02d%s", prefix, shard, idText.EncodeToString(e[:]))
}

func derive(from string, n uint64) Entropy {
	h := sha256.New()
	h.Write([]byte(from))
	var b [9]byte
	binary.BigEndian.PutUint64(b[1:], n)
	h.Write(b[:])
	var e Entropy
	copy(e[:], h.Sum(nil))
	return e
}
