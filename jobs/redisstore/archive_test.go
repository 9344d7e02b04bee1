package redisstore_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
)

// yard is a session with everything that a session can have.
type yard struct {
	session, turn, dispatch string
	forks                   []string
	snapshot                forkcore.Digest
}

// archiveScene makes a scene whose store archives by a policy.
func archiveScene(t *testing.T, client *redis.Client, policy forkcore.ArchivePolicy) *scene {
	if policy.Host == "" {
		policy.Host = "here"
	}
	return newScene(t, client, redisstore.Options{Archive: policy})
}

// yard makes one that is idle at the end.
func (s *scene) yard() yard {
	s.Helper()
	ctx := s.Context()
	y := yard{session: s.session()}
	lease := s.accept(y.session, "turn")
	h := lease.Holder
	y.turn = h.RunID
	n := int64(1)
	add := func(take []string, entries ...forkcore.Entry) {
		s.Helper()
		var err error
		n, err = s.store.Append(ctx, h, n, entries, take)
		s.must(err)
	}
	add([]string{"item-" + y.turn}, s.message(y.session, y.turn, strings.Repeat("hello ", 200)))
	row := s.begin(h, 1)
	s.firstEvent(h, row)
	row.Status, row.Usage = forkcore.RequestOK, &forkcore.Usage{Input: 10, Output: 5}
	var err error
	n, err = s.store.Settle(ctx, h, engine.Settle{
		Row: row, ExpectLen: n, Append: []forkcore.Entry{s.message(y.session, y.turn, "answer")},
		Entries: []forkcore.CacheEntry{{Prefix: forkcore.DigestOf([]byte("p")), UsedAt: time.Unix(1, 0), Tokens: 9}},
	})
	s.must(err)
	y.snapshot = forkcore.DigestOf([]byte(y.session))
	s.must(s.store.PutSnapshot(ctx, forkcore.Snapshot{ID: y.snapshot, SessionID: y.session}))
	d, wakes := s.dispatch(y.session, 2, forkcore.GateNone)
	y.dispatch = d.Dispatch.ID
	for _, w := range wakes {
		y.forks = append(y.forks, w.RunID)
		fork := s.lease(w.RunID, w.N, "fork")
		s.begin(fork.Holder, 1) // closed by the end
		s.end(fork.Holder)
	}
	items, err := s.store.Inbox(ctx, y.session)
	s.must(err)
	var take []string
	for _, i := range items {
		take = append(take, i.ID)
	}
	add(take, s.message(y.session, y.turn, "reports"))
	_, err = s.store.EndRun(ctx, h, engine.EndRun{State: forkcore.Done})
	s.must(err)
	return y
}

func (s *scene) archiveNow(session string) {
	s.Helper()
	a, err := s.store.ArchiveSession(s.Context(), session)
	s.must(err)
	if info, err := os.Stat(filepath.Join(a.Dir, session+".fyz")); err != nil || info.Size() != a.Bytes {
		s.Fatalf("the session should lie in %+v: %v", a, err)
	}
}

func (y yard) ids() []string { return append([]string{y.session, y.turn, y.dispatch}, y.forks...) }

// content reads keys whole, in a form that does not depend on how Redis packs them.
func content(t *testing.T, client *redis.Client, keys []string) map[string]string {
	t.Helper()
	ctx := t.Context()
	out := map[string]string{}
	for _, key := range keys {
		var v any
		var err error
		switch kind := client.Type(ctx, key).Val(); kind {
		case "hash":
			v, err = client.HGetAll(ctx, key).Result()
		case "list":
			v, err = client.LRange(ctx, key, 0, -1).Result()
		case "zset":
			v, err = client.ZRangeWithScores(ctx, key, 0, -1).Result()
		case "stream":
			var info *redis.XInfoStreamFull
			if info, err = client.XInfoStreamFull(ctx, key, 0).Result(); err == nil {
				v = fmt.Sprint(info.LastGeneratedID, info.EntriesAdded, info.MaxDeletedEntryID, info.Entries)
			}
		case "string":
			v, err = client.Get(ctx, key).Result()
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		sum := sha256.Sum256(fmt.Append(nil, v)) // fmt sorts maps
		out[key] = hex.EncodeToString(sum[:])
	}
	return out
}

// keysWith lists the keys that are named after one of the ids.
func keysWith(t *testing.T, client *redis.Client, ids []string) []string {
	t.Helper()
	all, err := client.Keys(t.Context(), "fy:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.DeleteFunc(all, func(k string) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(k, id) })
	})
	slices.Sort(keys)
	return keys
}

func TestArchiveAndBack(t *testing.T) {
	url := redistest.Start(t)
	dir := filepath.Join(t.TempDir(), "archive")
	client := connect(t, url)
	s := archiveScene(t, client, forkcore.ArchivePolicy{Dir: dir})
	ctx := t.Context()
	y := s.yard()
	other := s.yard()
	before := content(t, client, keysWith(t, client, y.ids()))
	others := content(t, client, keysWith(t, client, other.ids()))
	if len(before) < 17 {
		t.Fatalf("the session has %d keys only: %v", len(before), before)
	}
	was, err := s.store.Session(ctx, y.session)
	s.must(err)

	// Each way in opens it; the second time all is as before the first.
	text := []byte(strings.Repeat("hello ", 200))
	for name, open := range map[string]func() error{
		"session":  func() error { _, err := s.store.Session(ctx, y.session); return err },
		"turn":     func() error { _, err := s.store.Run(ctx, y.turn); return err },
		"fork":     func() error { _, err := s.store.Run(ctx, y.forks[1]); return err },
		"dispatch": func() error { _, err := s.store.Dispatch(ctx, y.dispatch); return err },
		"snapshot": func() error { _, err := s.store.Snapshot(ctx, y.session, y.snapshot); return err },
		"requests": func() error {
			rows, err := s.store.Requests(ctx, y.forks[0])
			if len(rows) != 1 {
				t.Errorf("%d requests", len(rows))
			}
			return err
		},
		"log": func() error {
			log, err := s.store.Log(ctx, y.session, y.session, 0, 0)
			if len(log) != 5 {
				t.Errorf("log of %d entries", len(log))
			}
			return err
		},
		"blobs":         func() error { _, err := s.store.Blobs(ctx, y.session, forkcore.DigestOf(text)); return err },
		"inbox":         func() error { _, err := s.store.Inbox(ctx, y.session); return err },
		"cache entries": func() error { _, err := s.store.CacheEntries(ctx, y.session); return err },
		"last event": func() error {
			id, err := s.store.LastEventID(ctx, y.session)
			if id == "0-0" {
				t.Error("no event")
			}
			return err
		},
		"cancel": func() error {
			if _, err := s.store.Cancel(ctx, y.turn); !errors.Is(err, forkcore.ErrConflict) {
				return fmt.Errorf("cancel of an ended run: %w", err)
			}
			return nil
		},
		"create again": func() error {
			_, created, err := s.store.CreateSession(ctx, forkcore.Session{ID: y.session, Title: "t"}, "")
			if created {
				t.Error("an archived session was created a second time")
			}
			return err
		},
		"bytes that come first": func() error {
			s.must(s.store.PutBlobs(ctx, y.session, text))
			_, err := s.store.Session(ctx, y.session)
			return err
		},
	} {
		s.archiveNow(y.session)
		left := keysWith(t, client, y.ids())
		if len(left) != 1 || !strings.Contains(left[0], "archived:"+y.session) {
			t.Fatalf("%s: these keys stay: %v", name, left)
		}
		list, _, err := s.store.Sessions(ctx, "", 0)
		s.must(err)
		i := slices.IndexFunc(list, func(l forkcore.Session) bool { return l.ID == y.session })
		stub := list[i]
		if stub.Archived == nil || stub.Archived.Host != "here" || stub.Archived.Dir != dir || stub.Archived.Bytes == 0 || stub.Archived.At.IsZero() {
			t.Fatalf("%s: the list does not say where it lies: %+v", name, stub.Archived)
		}
		stub.Archived = nil
		if diff := cmp.Diff(was, stub); diff != "" {
			t.Errorf("%s: the list shows something else: %s", name, diff)
		}
		runs, _, err := s.store.RunsOf(ctx, y.session, "", 10)
		if err != nil || len(runs) != 0 {
			t.Errorf("%s: a list of runs opens it: %v %v", name, runs, err)
		}
		s.must(open())
		if diff := cmp.Diff(before, content(t, client, keysWith(t, client, y.ids()))); diff != "" {
			t.Fatalf("%s: it came back changed: %s", name, diff)
		}
		if n := client.HLen(ctx, "fy:{"+y.session[4:6]+"}:where").Val(); n != 0 {
			t.Errorf("%s: %d ids are still looked for elsewhere", name, n)
		}
	}
	if diff := cmp.Diff(others, content(t, client, keysWith(t, client, other.ids()))); diff != "" {
		t.Errorf("another session changed: %s", diff)
	}

	// It goes on, and repeats of what it accepted are known.
	s.archiveNow(y.session)
	again, err := s.store.Accept(ctx, engine.Accept{
		Run:    forkcore.Run{ID: y.turn, SessionID: y.session, AgentID: y.session, Kind: forkcore.KindMain},
		Holder: engine.Holder{Executor: "web", Token: "other"}, ItemID: "item-" + y.turn, Text: "hello",
	})
	s.must(err)
	if again.Started || again.RunID != y.turn {
		t.Errorf("a repeated message was accepted anew: %+v", again)
	}
	s.archiveNow(y.session)
	next := s.accept(y.session, "next")
	if next.Run.SessionID != y.session {
		t.Errorf("the next turn is %+v", next.Run)
	}
	if _, err := s.store.ArchiveSession(ctx, y.session); !errors.Is(err, forkcore.ErrConflict) || !strings.Contains(err.Error(), "at work") {
		t.Errorf("a session at work: %v", err)
	}
}

func TestArchiveTwoOpeners(t *testing.T) {
	url := redistest.Start(t)
	dir := t.TempDir()
	client := connect(t, url)
	s := archiveScene(t, client, forkcore.ArchivePolicy{Dir: dir})
	y := s.yard()
	before := content(t, client, keysWith(t, client, y.ids()))
	s.archiveNow(y.session)
	s.archiveNow(y.session) // nothing to do
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.store.Run(t.Context(), y.forks[i%2]) })
	}
	wg.Wait()
	s.must(errors.Join(errs...))
	if diff := cmp.Diff(before, content(t, client, keysWith(t, client, y.ids()))); diff != "" {
		t.Error(diff)
	}
}

// TestArchiveRefusesChange: what comes between reading and removing is not lost.
func TestArchiveRefusesChange(t *testing.T) {
	url := redistest.Start(t)
	dir := t.TempDir()
	client := connect(t, url)
	s := archiveScene(t, client, forkcore.ArchivePolicy{Dir: dir})
	for name, change := range map[string]func(y yard){
		"a message": func(y yard) { s.accept(y.session, "t") },
		"bytes":     func(y yard) { s.must(s.store.PutBlobs(t.Context(), y.session, []byte("new"))) },
		"a snapshot": func(y yard) {
			s.must(s.store.PutSnapshot(t.Context(), forkcore.Snapshot{ID: forkcore.DigestOf([]byte("new")), SessionID: y.session}))
		},
		"a budget":      func(y yard) { s.must(s.store.SetBudget(t.Context(), y.session, 5)) },
		"budget of one": func(y yard) { s.must(s.store.SetBudget(t.Context(), y.dispatch, 5)) },
	} {
		y := s.yard()
		hooked := connect(t, url)
		hooked.AddHook(beforeScript(func() { change(y) }))
		archiver := newStore(hooked, redisstore.Options{Archive: forkcore.ArchivePolicy{Dir: dir, Host: "here"}})
		_, err := archiver.ArchiveSession(t.Context(), y.session)
		if !errors.Is(err, forkcore.ErrConflict) || !strings.Contains(err.Error(), "changed while") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, y.session+".fyz")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file stays: %v", name, err)
		}
		if _, err := s.store.Session(t.Context(), y.session); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// beforeScript runs once before the first script that a client sends.
type beforeScript func()

func (beforeScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (beforeScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f beforeScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	var once sync.Once
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			once.Do(f)
		}
		return next(ctx, cmd)
	}
}

func TestArchiveElsewhere(t *testing.T) {
	url := redistest.Start(t)
	client := connect(t, url)
	dirA, dirB := t.TempDir(), t.TempDir()
	a := archiveScene(t, client, forkcore.ArchivePolicy{Dir: dirA, Host: "a.example"})
	b := archiveScene(t, client, forkcore.ArchivePolicy{Dir: dirB, Host: "b.example"})
	worker := newScene(t, client, redisstore.Options{})
	ctx := t.Context()
	y := a.yard()
	a.archiveNow(y.session)
	name := y.session + ".fyz"
	for who, store := range map[string]*redisstore.Store{"another dashboard": b.store, "a worker": worker.store} {
		_, err := store.Run(ctx, y.forks[0])
		var conflict *forkcore.ConflictError
		if !errors.As(err, &conflict) || !strings.Contains(conflict.Message, dirA) || !strings.Contains(conflict.Message, "a.example") ||
			!strings.Contains(conflict.NextStep, filepath.Join(dirA, name)) {
			t.Errorf("%s: %v", who, err)
		}
	}
	// By hand: the file in the other folder is enough.
	file, err := os.ReadFile(filepath.Join(dirA, name))
	a.must(err)
	broken := slices.Clone(file)
	broken[len(broken)/2] ^= 1
	for what, c := range map[string]struct {
		file []byte
		want error
	}{"a damaged file": {broken, forkcore.ErrCorrupt}, "half a file": {file[:len(file)/2], forkcore.ErrCorrupt}, "an empty file": {nil, forkcore.ErrCorrupt}} {
		a.must(os.WriteFile(filepath.Join(dirB, name), c.file, 0o600))
		if _, err := b.store.Session(ctx, y.session); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.must(os.WriteFile(filepath.Join(dirB, name), file, 0o600))
	_, err = b.store.Session(ctx, y.session)
	b.must(err)

	// A file of an earlier time is not taken.
	a.accept(y.session, "t")
	_, _, err = a.store.Stop(ctx, y.session, "tree")
	a.must(err)
	z := a.yard()
	a.archiveNow(z.session)
	a.must(os.Rename(filepath.Join(dirA, z.session+".fyz"), filepath.Join(dirA, "kept")))
	if _, err := a.store.Session(ctx, z.session); !errors.Is(err, forkcore.ErrConflict) || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("without its file: %v", err)
	}
	a.must(os.WriteFile(filepath.Join(dirA, z.session+".fyz"), file, 0o600))
	if _, err := a.store.Session(ctx, z.session); !errors.Is(err, forkcore.ErrConflict) || !strings.Contains(err.Error(), "is not the one") {
		t.Errorf("with another file: %v", err)
	}
	a.must(os.Rename(filepath.Join(dirA, "kept"), filepath.Join(dirA, z.session+".fyz")))
	_, err = a.store.Session(ctx, z.session)
	a.must(err)
}

// TestKeepStorage: by age, the oldest first while memory is scarce, never what is open or has just changed.
func TestKeepStorage(t *testing.T) {
	url := redistest.Start(t)
	client := connect(t, url)
	ctx := t.Context()
	dir := t.TempDir()
	s := archiveScene(t, client, forkcore.ArchivePolicy{Dir: dir, After: 30 * 24 * time.Hour, Above: 0.8})
	age := func(y yard, by time.Duration) yard {
		ms := fmt.Sprint(time.Now().Add(-by).UnixMilli())
		s.must(client.HSet(ctx, "fy:{"+y.session[4:6]+"}:session:"+y.session, "updated", ms).Err())
		s.must(client.ZRem(ctx, "fy:{"+y.session[4:6]+"}:seen", y.session).Err())
		return y
	}
	day := 24 * time.Hour
	old, oldest, open, busy, fresh := age(s.yard(), 31*day), age(s.yard(), 40*day), age(s.yard(), 35*day), s.yard(), age(s.yard(), 29*day)
	s.accept(busy.session, "t")
	age(busy, 33*day)
	// Opened by another dashboard.
	_, err := archiveScene(t, client, forkcore.ArchivePolicy{Dir: t.TempDir()}).store.Run(ctx, open.forks[0])
	s.must(err)
	young := s.yard()
	at := func() (archived []string, storage forkcore.Storage) {
		t.Helper()
		s.must(s.store.KeepOnce(ctx))
		storage, err := s.store.Storage(ctx)
		s.must(err)
		for _, l := range storage.Sessions {
			if l.Session.Archived != nil {
				archived = append(archived, l.Session.ID)
			} else if l.Bytes == 0 {
				t.Errorf("%s was not measured", l.Session.ID)
			}
		}
		slices.Sort(archived)
		return archived, storage
	}
	sorted := func(list ...yard) (ids []string) {
		for _, y := range list {
			ids = append(ids, y.session)
		}
		slices.Sort(ids)
		return ids
	}
	got, storage := at()
	if diff := cmp.Diff(sorted(old, oldest), got); diff != "" {
		t.Fatalf("archived by age: %s", diff)
	}
	if storage.Memory == nil || storage.Memory.Own || storage.Memory.Used == 0 || len(storage.Memory.Samples) != 1 {
		t.Errorf("memory: %+v", storage.Memory)
	}
	live := storage.Sessions[:4]
	if !slices.IsSortedFunc(live, func(a, b forkcore.StoredSession) int { return int(b.Bytes - a.Bytes) }) {
		t.Errorf("not by size: %+v", live)
	}
	// Opening one counts as using it, for as long as that is the rule.
	_, err = s.store.Session(ctx, oldest.session)
	s.must(err)
	seen := func(by time.Duration) {
		s.must(client.ZAdd(ctx, "fy:{"+oldest.session[4:6]+"}:seen", redis.Z{Score: float64(time.Now().Add(-by).UnixMilli()), Member: oldest.session}).Err())
	}
	for _, by := range []time.Duration{0, 2 * day, 29 * day} {
		if by > 0 {
			seen(by)
		}
		if got, _ = at(); !cmp.Equal(sorted(old), got) {
			t.Errorf("opened %v ago: %v are archived, want %v", by, got, sorted(old))
		}
	}
	seen(31 * day)
	if got, _ = at(); !cmp.Equal(sorted(old, oldest), got) {
		t.Errorf("opened 31 days ago: %v are archived", got)
	}
	s.store.NoteOpen(ctx, forkcore.NewSessionID(s.entropy()))
	for _, shard := range []string{"00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15"} {
		for _, id := range client.ZRange(ctx, "fy:{"+shard+"}:seen", 0, -1).Val() {
			if !slices.Contains(sorted(open, busy, fresh, young), id) {
				t.Errorf("%s is noted as open", id)
			}
		}
	}
	// Scarce: whatever is an hour old goes; young, open and busy ones stay.
	s.must(client.ConfigSet(ctx, "maxmemory", fmt.Sprint(storage.Memory.Used)).Err())
	if got, _ = at(); !cmp.Equal(sorted(old, oldest, fresh), got) {
		t.Errorf("archived while memory is scarce: %v, want %v", got, sorted(old, oldest, fresh))
	}
	if _, err := s.store.SampleMemory(ctx); err != nil && !errors.Is(err, forkcore.ErrStoreFull) {
		t.Error(err)
	}
	s.must(client.ConfigSet(ctx, "maxmemory", "0").Err())
	if _, err := s.store.Session(ctx, young.session); err != nil {
		t.Error(err)
	}

	// Files that are not needed go after a day, and no others.
	_, err = s.store.Session(ctx, old.session)
	s.must(err)
	long := time.Now().Add(-2 * day)
	write := func(name string) string {
		path := filepath.Join(dir, name)
		s.must(os.WriteFile(path, nil, 0o600))
		return path
	}
	gone := []string{write(oldest.session + ".fyz.tmp-1"), filepath.Join(dir, old.session+".fyz")}
	stay := []string{write("ses_00aaaaaaaaaaaaaaaa.fyz"), write("notes.txt"), filepath.Join(dir, oldest.session+".fyz")}
	for _, path := range append(slices.Clone(gone), stay...) {
		s.must(os.Chtimes(path, long, long))
	}
	stay = append(stay, write(oldest.session+".fyz.tmp-2"))
	at()
	for _, path := range stay {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("it must stay: %v", err)
		}
	}
	for _, path := range gone {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s stays: %v", path, err)
		}
	}
}

func TestSampleMemory(t *testing.T) {
	url := redistest.Start(t)
	client := connect(t, url)
	s := archiveScene(t, client, forkcore.ArchivePolicy{})
	ctx := t.Context()
	var wg sync.WaitGroup
	taken := make([]bool, 8)
	for i := range taken { // as many processes
		wg.Go(func() { taken[i], _ = s.store.SampleMemory(ctx) })
	}
	wg.Wait()
	if n := len(slices.DeleteFunc(taken, func(b bool) bool { return !b })); n != 1 {
		t.Errorf("%d of 8 processes took the sample of this minute", n)
	}
	// The series is bounded, and a clock that was set back does not end it.
	old := make([]any, 1600)
	for i := range old {
		old[i] = fmt.Sprintf("%d:7", time.Now().Add(time.Hour).UnixMilli())
	}
	s.must(client.RPush(ctx, "fy:memory", old...).Err())
	if ok, err := s.store.SampleMemory(ctx); !ok || err != nil {
		t.Errorf("after the clock was set back: %v, %v", ok, err)
	}
	m, err := s.store.Memory(ctx)
	s.must(err)
	if len(m.Samples) != 1500 || m.Samples[1499].Used < 100_000 || m.Limit == 0 || m.Own {
		t.Errorf("%d samples, last %+v, of %d", len(m.Samples), m.Samples[len(m.Samples)-1], m.Limit)
	}
}

// TestFullRedis: nothing acknowledged is lost, every write says what to do, and the archive makes room.
func TestFullRedis(t *testing.T) {
	url := redistest.Start(t)
	client := connect(t, url)
	ctx := t.Context()
	s := archiveScene(t, client, forkcore.ArchivePolicy{Dir: t.TempDir()})
	y := s.yard()
	busy := s.session()
	h := s.accept(busy, "t").Holder
	length := int64(1)
	ending, releasing, waiting := s.accept(s.session(), "t").Holder, s.accept(s.session(), "t").Holder, s.accept(s.session(), "t").Holder
	ended := s.yard()
	ids := y.ids()
	before := content(t, client, keysWith(t, client, ids))

	m, err := s.store.Memory(ctx)
	s.must(err)
	s.must(client.ConfigSet(ctx, "maxmemory", fmt.Sprint(m.Used+3<<20)).Err())
	var acknowledged [][]byte
	big := strings.Repeat("0123456789abcdef", 4096)
	for i := range 1000 {
		b := fmt.Appendf(nil, "%d %s", i, randomText(big, i))
		if err = s.store.PutBlobs(ctx, y.session, b); err != nil {
			break
		}
		acknowledged = append(acknowledged, b)
	}
	if !errors.Is(err, forkcore.ErrStoreFull) || !errors.Is(err, forkcore.ErrStoreUnavailable) || !strings.Contains(err.Error(), "Redis is full") || !strings.Contains(err.Error(), "maxmemory") {
		t.Fatalf("after %d blobs: %v", len(acknowledged), err)
	}
	limit := m.Used + 3<<20
	s.must(client.ConfigSet(ctx, "maxmemory", fmt.Sprint(limit-1<<20)).Err()) // or what is small still fits, now and then
	fork, err := forkcore.NewDispatchID(busy, s.entropy())
	s.must(err)
	run, err := forkcore.ChildRunID(fork, 0)
	s.must(err)
	row := forkcore.RequestRow{RunID: h.RunID, SessionID: busy, N: 1, Status: forkcore.RequestOpen, StartedAt: time.Unix(1, 0).UTC()}
	for name, write := range map[string]func() error{
		"create session": func() error {
			_, _, err := s.store.CreateSession(ctx, forkcore.Session{ID: forkcore.NewSessionID(s.entropy())}, "")
			return err
		},
		"put blobs":    func() error { return s.store.PutBlobs(ctx, busy, []byte("b")) },
		"put snapshot": func() error { return s.store.PutSnapshot(ctx, forkcore.Snapshot{ID: y.snapshot, SessionID: busy}) },
		"accept": func() error {
			_, err := s.store.Accept(ctx, engine.Accept{Run: forkcore.Run{ID: run, SessionID: busy, AgentID: busy, Kind: forkcore.KindMain}, ItemID: "i", Text: "t"})
			return err
		},
		"append": func() error {
			_, err := s.store.Append(ctx, h, length, []forkcore.Entry{{Kind: forkcore.EntryMarker, RunID: h.RunID, Marker: &forkcore.Marker{Type: forkcore.MarkerBackground}}}, nil)
			return err
		},
		"begin request": func() error { return s.store.BeginRequest(ctx, h, row, 1, time.Minute) },
		"dispatch": func() error {
			_, _, err := s.store.CreateDispatch(ctx, nil, engine.CreateDispatch{
				Dispatch: forkcore.Dispatch{ID: fork, SessionID: busy, Gate: forkcore.GateNone}, Runs: []forkcore.Run{{ID: run, SessionID: busy, AgentID: run, Kind: forkcore.KindFork, DispatchID: fork}},
				Logs: [][]forkcore.Entry{nil},
			})
			return err
		},
		"stop":      func() error { _, _, err := s.store.Stop(ctx, busy, "tree"); return err },
		"cancel":    func() error { _, err := s.store.Cancel(ctx, h.RunID); return err },
		"budget":    func() error { return s.store.SetBudget(ctx, busy, 1) },
		"heartbeat": func() error { _, err := s.store.Heartbeat(ctx, "x"); return err },
		"delta": func() error {
			return s.store.PublishDelta(ctx, engine.Delta{SessionID: busy, RunID: h.RunID, Text: "x"})
		},
		"simulator": func() error { return s.store.PublishSimulator(ctx, "http://x") },
		"account":   func() error { return s.store.CoolDown(ctx, "acc", time.Minute) },
	} {
		if err := write(); !errors.Is(err, forkcore.ErrStoreFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A step that begins by removing something is let through; it must be whole then.
	check := func(name string, err error, done func() bool) {
		t.Helper()
		if err == nil && !done() || err != nil && !errors.Is(err, forkcore.ErrStoreFull) {
			t.Errorf("%s: %v, and what it changed is not whole", name, err)
		}
	}
	session := func(id string) forkcore.Session {
		t.Helper()
		got, err := s.store.Session(ctx, id)
		s.must(err)
		return got
	}
	_, err = s.store.EndRun(ctx, ending, engine.EndRun{State: forkcore.Failed})
	check("end", err, func() bool {
		got := session(ending.SessionID)
		return got.ActiveRunID == "" && got.ActiveRuns == 0 && got.LastState == forkcore.Failed
	})
	_, err = s.store.Resume(ctx, ended.forks[0])
	check("resume", err, func() bool {
		run, err := s.store.Run(ctx, ended.forks[0])
		return err == nil && run.State == forkcore.Queued && session(ended.session).ActiveRuns == 1
	})
	// People can sign in to make room.
	s.must(s.store.SaveSecret(ctx, "k", "s", time.Now().Add(time.Hour)))
	if ok, err := s.store.TakeSecret(ctx, "k", "s"); !ok || err != nil {
		t.Errorf("a secret: %v, %v", ok, err)
	}

	_, err = s.store.Release(ctx, releasing)
	check("release", err, func() bool {
		run, err := s.store.Run(ctx, releasing.RunID)
		return err == nil && run.State == forkcore.Queued && run.Background
	})
	err = s.store.Wait(ctx, waiting, engine.WaitFor{Delay: time.Minute, Reason: forkcore.Reason{Code: "rate_limit"}})
	check("wait", err, func() bool {
		run, err := s.store.Run(ctx, waiting.RunID)
		return err == nil && run.State == forkcore.Waiting && run.Reason != nil
	})
	marker := []forkcore.Entry{{Kind: forkcore.EntryMarker, RunID: h.RunID, Marker: &forkcore.Marker{Type: forkcore.MarkerBackground}}}
	n, err := s.store.Append(ctx, h, length, marker, []string{"item-" + h.RunID})
	check("append from the inbox", err, func() bool { return n == length+1 })
	items, inboxErr := s.store.Inbox(ctx, busy)
	s.must(inboxErr)
	if err == nil {
		length = n
	}
	if taken := len(items) == 0; taken != (err == nil) {
		t.Fatalf("append: %v, and the inbox has %d items", err, len(items))
	}

	// Reading goes on, archiving makes room, and all goes on.
	if _, err := s.store.Run(ctx, y.turn); err != nil {
		t.Errorf("read: %v", err)
	}
	s.archiveNow(y.session)
	after, err := s.store.Memory(ctx)
	s.must(err)
	t.Logf("the limit is %d bytes; without the session %d are used", limit-1<<20, after.Used)
	n, err = s.store.Append(ctx, h, length, []forkcore.Entry{s.message(busy, h.RunID, "goes on")}, nil)
	s.must(err)
	if n != length+1 {
		t.Errorf("the log has %d entries", n)
	}
	// It comes back when there is room, with every byte that was acknowledged.
	s.must(client.ConfigSet(ctx, "maxmemory", fmt.Sprint(after.Used+512<<10)).Err())
	if _, err := s.store.Session(ctx, y.session); !errors.Is(err, forkcore.ErrStoreFull) {
		t.Errorf("no room to come back: %v", err)
	}
	if left := keysWith(t, client, ids); len(left) != 1 {
		t.Errorf("what found no room takes some: %v", left)
	}
	s.must(client.ConfigSet(ctx, "maxmemory", "0").Err())
	for i, b := range acknowledged {
		got, err := s.store.Blobs(ctx, y.session, forkcore.DigestOf(b))
		if err != nil || string(got[0]) != string(b) {
			t.Fatalf("blob %d was acknowledged and is lost: %v", i, err)
		}
	}
	now := content(t, client, keysWith(t, client, ids))
	for key, sum := range before {
		if now[key] != sum && !strings.Contains(key, "blobs:") {
			t.Errorf("%s changed", key)
		}
	}
}

// randomText does not compress to nothing.
func randomText(from string, seed int) string {
	var b strings.Builder
	sum := sha256.Sum256(fmt.Append(nil, seed))
	for b.Len() < len(from) {
		sum = sha256.Sum256(sum[:])
		b.WriteString(hex.EncodeToString(sum[:]))
	}
	return b.String()
}
