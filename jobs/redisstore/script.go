package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

//go:embed scripts/*.lua
var sources embed.FS

// scriptName is the stem of a file in scripts/.
type scriptName string

// The scripts, one for each step.
const (
	scriptCreateSession    scriptName = "create_session"
	scriptAccept           scriptName = "accept"
	scriptTakeLease        scriptName = "take_lease"
	scriptAppend           scriptName = "append"
	scriptBeginRequest     scriptName = "begin_request"
	scriptFirstEvent       scriptName = "first_event"
	scriptSettle           scriptName = "settle"
	scriptCreateDispatch   scriptName = "create_dispatch"
	scriptRelease          scriptName = "release"
	scriptWait             scriptName = "wait"
	scriptEndRun           scriptName = "end_run"
	scriptStop             scriptName = "stop"
	scriptCancel           scriptName = "cancel"
	scriptSignalBackground scriptName = "signal_background"
	scriptHeartbeat        scriptName = "heartbeat"
	scriptGoodbye          scriptName = "goodbye"
	scriptSweep            scriptName = "sweep"
	scriptPutAway          scriptName = "put_away"
	scriptBringBack        scriptName = "bring_back"
	scriptSeen             scriptName = "seen"
	scriptTakeOut          scriptName = "take_out"
	scriptWakeWaiting      scriptName = "wake_waiting"
	scriptResume           scriptName = "resume"
	scriptSetBudget        scriptName = "set_budget"
	scriptDeliver          scriptName = "deliver"
)

var scriptNames = [...]scriptName{
	scriptCreateSession, scriptAccept, scriptTakeLease, scriptAppend, scriptBeginRequest, scriptFirstEvent,
	scriptSettle, scriptCreateDispatch, scriptRelease, scriptWait, scriptEndRun, scriptStop, scriptCancel,
	scriptSignalBackground, scriptHeartbeat, scriptGoodbye, scriptSweep, scriptWakeWaiting,
	scriptResume, scriptSetBudget, scriptDeliver, scriptPutAway, scriptBringBack, scriptSeen, scriptTakeOut,
}

const (
	// enqueueGrace is how long a queued run waits for the enqueue that follows
	// its step before a sweep hands it out again.
	enqueueGrace = time.Second
	// liveLength bounds a shard's live stream. It is a hand-over to readers
	// that are there, not a history.
	liveLength = 20_000
)

// lonely are the scripts of keys outside the shards: they stand without the prelude.
type lonely struct{ secret, account, ready, memory *redis.Script }

// loadScripts puts in front of every script what it needs of the prelude. The sources are part
// of the program, so a missing file is a programmer's error.
func loadScripts() (byName map[scriptName]*redis.Script, alone lonely) {
	prelude := definitions(generated() + source("prelude"))
	byName = make(map[scriptName]*redis.Script, len(scriptNames))
	for _, name := range scriptNames {
		body := source(name)
		flags := ""
		if strings.HasPrefix(body, "#!") { // Redis wants flags first of all
			line, rest, _ := strings.Cut(body, "\n")
			flags, body = line+"\n", rest
		}
		byName[name] = redis.NewScript(flags + needed(prelude, body) + body)
	}
	for name, script := range map[scriptName]**redis.Script{"secret": &alone.secret, "account": &alone.account, "ready": &alone.ready, "memory": &alone.memory} {
		*script = redis.NewScript(source(name))
	}
	return byName, alone
}

func source(name scriptName) string {
	b, err := sources.ReadFile("scripts/" + string(name) + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// generated is the part of the prelude that Go knows best: key stems, the
// table of transitions, reasons.
func generated() string {
	var b strings.Builder
	fmt.Fprintf(&b, "local SHARD = '%s{' .. ARGV[1] .. '}:'\n", keySpace)
	for _, k := range luaStems {
		fmt.Fprintf(&b, "local %s = SHARD .. '%s'\n", k.name, k.stem)
	}
	b.WriteString("local NEXT = {\n")
	for _, from := range forkcore.States {
		if from.Ended() {
			continue
		}
		fmt.Fprintf(&b, "  %s = {", from)
		for _, to := range forkcore.States {
			if from.CanBecome(to) {
				fmt.Fprintf(&b, "%s = true, ", to)
			}
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\nlocal RESUMABLE = {")
	for _, s := range forkcore.States {
		if s.Resumable() {
			fmt.Fprintf(&b, "%s = true, ", s)
		}
	}
	b.WriteString("}\nlocal STOPPED = {\n")
	for _, wish := range forkcore.StopWishes {
		fmt.Fprintf(&b, "  %s = [==[%s]==],\n", wish, encode(forkcore.StopReason(wish)))
	}
	b.WriteString("}\nlocal STOP_STATE = {")
	for _, wish := range forkcore.StopWishes {
		fmt.Fprintf(&b, "%s = '%s', ", wish, forkcore.StopState(wish))
	}
	b.WriteString("}\n")
	fmt.Fprintf(&b, "local GRACE, LIVE_MAX = %d, '%d'\n", enqueueGrace.Milliseconds(), liveLength)
	return b.String()
}

// encode is for values that always encode: our own structs of strings and numbers.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// args are a script's arguments: strings, lists and maps of strings only.
type args map[string]any

// step is one call of a script.
type step struct {
	name  scriptName
	shard shard
	// op names the step: a script that finds it done already answers as it did.
	op   string
	args string
}

// derivedStep is named by what it does, so that the caller may repeat it too.
// For steps of a holder: the token and the log's length make it unique.
func derivedStep(name scriptName, s shard, a args) step {
	st := step{name: name, shard: s, args: encode(a)}
	sum := sha256.Sum256([]byte(string(name) + st.args))
	st.op = hex.EncodeToString(sum[:16])
	return st
}

// freshStep is named at random: only the client's own retry after a lost answer is the same step.
func freshStep(name scriptName, s shard, a args) step {
	return step{name: name, shard: s, op: rand.Text(), args: encode(a)}
}

func (st step) keys() []string { return []string{st.shard.key(stemDue)} }

func (st step) argv() []any { return []any{st.shard.tag(), st.op, st.args} }

// run performs a step and returns what the script answered after "ok".
func (s *Store) run(ctx context.Context, st step) ([]string, error) {
	return s.answer(st, s.scripts[st.name].Run(ctx, s.client, st.keys(), st.argv()...))
}

// runAll performs steps in one pipeline and returns their answers in order.
func (s *Store) runAll(ctx context.Context, steps []step) ([][]string, error) {
	cmds := make([]*redis.Cmd, len(steps))
	// The commands carry their errors; one that failed does not undo the others.
	_, _ = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, st := range steps {
			cmds[i] = s.scripts[st.name].EvalSha(ctx, p, st.keys(), st.argv()...)
		}
		return nil
	})
	answers := make([][]string, len(steps))
	var failures []error
	for i, st := range steps {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = s.scripts[st.name].Eval(ctx, s.client, st.keys(), st.argv()...)
		}
		a, err := s.answer(st, cmds[i])
		if err != nil {
			failures = append(failures, err)
		}
		answers[i] = a
	}
	return answers, errors.Join(failures...)
}

func (s *Store) answer(st step, cmd *redis.Cmd) ([]string, error) {
	doing := strings.ReplaceAll(string(st.name), "_", " ")
	reply, err := cmd.StringSlice()
	if err != nil {
		return nil, s.failure(doing, err)
	}
	if len(reply) > 0 && reply[0] == "ok" {
		return reply[1:], nil
	}
	if len(reply) < 2 {
		return nil, fmt.Errorf("%s: unexpected answer %q", doing, reply)
	}
	return nil, fmt.Errorf("%s: %w", doing, refusal(reply[1:]))
}

// refusal turns a script's code into the error that callers compare with.
func refusal(r []string) error {
	switch r[0] {
	case "lease_lost":
		return engine.ErrLeaseLost
	case "stale":
		return engine.ErrStale
	case "parked":
		return engine.ErrParked
	case "stopped":
		return engine.ErrStopped
	case "inbox":
		return engine.ErrInbox
	case "budget":
		return forkcore.ErrBudget
	case "not_found":
		return forkcore.ErrNotFound
	case "idempotency":
		return forkcore.ErrIdempotencyMismatch
	case "descendants":
		if err := tooManyDescendants(r[1:]); err != nil {
			return err
		}
	case "conflict":
		if len(r) == 3 {
			return &forkcore.ConflictError{Message: r[1], NextStep: r[2]}
		}
	}
	return fmt.Errorf("unexpected refusal %q", r)
}

// tooManyDescendants reads how many forks a session has started, how many more were wanted and how many there may be;
// nil when that is not what r says.
func tooManyDescendants(r []string) error {
	f := &fieldReader{fields: fields{}}
	for i, name := range []string{"had", "wanted", "max"} {
		if i < len(r) {
			f.fields[name] = r[i]
		}
	}
	err := forkcore.Guard{MaxDescendants: f.int("max")}.Admit(f.int("had"), f.int("wanted"))
	if f.err != nil || err == nil {
		return nil
	}
	return err
}

// parseWakes reads "<run>.<n>/<session>/<pool>/<class> …".
func parseWakes(s string) ([]engine.Wake, error) {
	var wakes []engine.Wake
	for w := range strings.FieldsSeq(s) {
		run, rest, _ := strings.Cut(w, ".")
		parts := strings.Split(rest, "/")
		n, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || len(parts) != 4 {
			return nil, fmt.Errorf("read wake %q: %w", w, err)
		}
		wakes = append(wakes, engine.Wake{RunID: run, N: n, SessionID: parts[1], Pool: parts[2], Batch: parts[3] == "b"})
	}
	return wakes, nil
}

// wakesOf performs a step whose i-th answer is a list of wakes.
func (s *Store) wakesOf(ctx context.Context, st step, i int) ([]engine.Wake, error) {
	a, err := s.run(ctx, st)
	if err != nil {
		return nil, err
	}
	if len(a) <= i {
		return nil, fmt.Errorf("%s: answer %q is too short", st.name, a)
	}
	return parseWakes(a[i])
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

func millis(d time.Duration) string { return formatInt(d.Milliseconds()) }

func formatBool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
