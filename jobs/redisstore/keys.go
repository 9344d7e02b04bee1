package redisstore

import (
	"fmt"
	"strings"

	"forkyard/forkcore"
)

// keySpace is the first part of every key, so that one Redis can serve others
// beside us.
const keySpace = "fy:"

// Every key that belongs to a session is keySpace + "{<shard>}:" + one of these
// stems + ids. The tag is the shard number in two digits ("00" to "15"), read
// out of the id, so that one script can touch all keys of a session and Redis
// Cluster spreads the shards. Scripts are the only writers unless it says
// otherwise. Nothing expires by itself: times are stored, never key expiry.
//
// Hash fields whose name starts with "_" are the store's own and are left out
// of events.
const (
	// stemSession + session: hash, one forkcore.Session (see sessions.go).
	// _runs counts runs ever created, _hash is the request hash of its creation, _follow the inbox
	// item of the last text that came after the stop wish of the turn in progress.
	stemSession = "session:"
	// stemRun + run: hash, one forkcore.Run (see runs.go). _token, _epoch and
	// _executor are the lease (empty token = nobody holds it); _op and _reply
	// are the last guarded step and its answer, which make a repeated call harmless; _wish_op and _wish_reply
	// (here and in sessions) the same for Cancel and Stop, which are not the holder's.
	stemRun = "run:"
	// stemDispatch + dispatch: hash, one forkcore.Dispatch (see dispatches.go).
	// _notices are the children that ended, in that order; _stopped is 1 after a stop of the tree;
	// _opened is when the gate opened (ms); _hash the request hash.
	stemDispatch = "dispatch:"
	// stemLog + session + ":" + agent: list of log records, seq = index + 1 (see logs.go).
	stemLog = "log:"
	// stemBlobs + session: hash digest → header byte + bytes. Written by PutBlobs.
	stemBlobs = "blobs:"
	// stemSnapshots + session: hash digest → manifest JSON. Written by PutSnapshot.
	stemSnapshots = "snapshots:"
	// stemRuns + session: sorted set of run ids by order of creation.
	stemRuns = "runs:"
	// stemActive + session: sorted set of the runs that have not ended, same score.
	stemActive = "active:"
	// stemInbox + session: hash item id → record; stemInboxOrder + session: list of item ids.
	stemInbox      = "inbox:"
	stemInboxOrder = "inboxorder:"
	// stemAccepted + session: hash "key:<idempotency key>" and "item:<item id>" → JSON of what Accept answered.
	stemAccepted = "accepted:"
	// stemEntries + session: hash prefix digest → used-at ms + ":" + JSON of a forkcore.CacheEntry.
	stemEntries = "entries:"
	// stemEvents + session: stream of durable events; stream id = event id.
	stemEvents = "events:"
	// stemLedger + run: hash n → JSON of a request row; stemOpen + run: hash n → reserved nano-dollars of open rows.
	stemLedger = "ledger:"
	stemOpen   = "open:"
	// stemArchived + session: hash, what lists show of an archived session and where its file lies (see archive.go). It and the
	// session's hash are never both there.
	stemArchived = "archived:"
	// stemHeld + executor: set of run ids leased to it. stemSignals + executor: hash run id → "stop" or "background".
	// stemSent + executor: the last fetched signals, kept for a repeated heartbeat whose answer was lost.
	stemHeld    = "held:"
	stemSignals = "signals:"
	stemSent    = "sent:"

	// One per shard:

	// stemDue: sorted set by ms of "run:<id>" (a queued run to hand out again, a waiting one to go on) and "gate:<dispatch>" (a gate's limit).
	stemDue = "due"
	// stemWaiting + account: set of the runs that wait for the account's key; each names the account in its _account.
	stemWaiting = "waiting:"
	// stemBeats: hash executor → ms of its last heartbeat; 0 after a goodbye.
	stemBeats = "beats"
	// stemLive: stream of all durable events and deltas of the shard, trimmed. PublishDelta writes here too.
	stemLive = "live"
	// stemSessions: sorted set of session ids by microseconds of creation.
	stemSessions = "sessions"
	// stemWhere: hash run or dispatch of an archived session → session: their ids do not tell.
	stemWhere = "where"
	// stemSeen: sorted set of the session ids that are not archived, by ms of when somebody last opened them.
	stemSeen = "seen"
)

// Keys outside the shards; all can be rebuilt or asked for again.
const (
	// keySnapshotSessions + digest: set of the ids of the sessions that hold the snapshot. Written by PutSnapshot.
	keySnapshotSessions = keySpace + "snapshot:"
	// keySecrets: sorted set of "<kind>:<sha256>" by ms of expiry.
	keySecrets = keySpace + "secrets"
	// keyAccounts + account: hash, what is known of a key at an endpoint (see accounts.go and scripts/account.lua). It holds no
	// key, but for "sealed": its successor, encrypted with the key itself.
	keyAccounts = keySpace + "account:"
	// keyAccount: string, the account that the dashboard uses. Written by UseAccount.
	keyAccount = keySpace + "account"
	// keyReady + …: the ready list (see scripts/ready.lua), in one slot of its own. It can be rebuilt: the shards' due sets offer
	// again whatever is queued. "pools" is a hash pool → root, written by NamePools.
	keyReady = keySpace + "{ready}:"
	// keyFlags: hash name → "true" or "false" of the flags that were set. Written by SetFlag.
	keyFlags = keySpace + "flags"
	// simulatorKey: string, where the dashboard's simulated model listens. Written by PublishSimulator.
	simulatorKey = keySpace + "simulator"
	// keyMemory: list of "<ms>:<bytes>", what Redis used once a minute, trimmed to a day (see memory.go).
	keyMemory = keySpace + "memory"
)

// luaStems names the stems for scripts.
var luaStems = [...]struct{ name, stem string }{
	{"SESSION", stemSession},
	{"RUN", stemRun},
	{"DISPATCH", stemDispatch},
	{"LOG", stemLog},
	{"BLOBS", stemBlobs},
	{"SNAPSHOTS", stemSnapshots},
	{"RUNS", stemRuns},
	{"ACTIVE", stemActive},
	{"INBOX", stemInbox},
	{"INBOX_ORDER", stemInboxOrder},
	{"ACCEPTED", stemAccepted},
	{"ENTRIES", stemEntries},
	{"EVENTS", stemEvents},
	{"LEDGER", stemLedger},
	{"OPEN", stemOpen},
	{"HELD", stemHeld},
	{"SIGNALS", stemSignals},
	{"SENT", stemSent},
	{"WAITING", stemWaiting},
	{"DUE", stemDue},
	{"BEATS", stemBeats},
	{"LIVE", stemLive},
	{"SESSIONS", stemSessions},
	{"ARCHIVED", stemArchived},
	{"WHERE", stemWhere},
	{"SEEN", stemSeen},
}

// shard is the hash tag of a group of sessions.
type shard int

// shardOf reads the shard out of a session, run or dispatch id.
func shardOf(id string) (shard, error) {
	n, err := forkcore.ShardOf(id)
	return shard(n), err
}

func (s shard) tag() string { return fmt.Sprintf("%02d", int(s)) }

// key makes a key of this shard from a stem and ids.
func (s shard) key(stem string, ids ...string) string {
	return keySpace + "{" + s.tag() + "}:" + stem + strings.Join(ids, ":")
}
