package forkcore

import (
	"errors"
	"fmt"
	"testing"
)

func entropy(n int) Entropy {
	d := DigestOf(fmt.Append(nil, n))
	return Entropy(d[:10])
}

func TestIDsCarryTheirSessionsShard(t *testing.T) {
	shards := map[int]bool{}
	seen := map[string]bool{}
	fresh := func(id string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if seen[id] {
			t.Errorf("id %s came twice", id)
		}
		seen[id] = true
		return id
	}
	for i := range 300 {
		ses := fresh(NewSessionID(entropy(i)), nil)
		shard, err := ShardOf(ses)
		if err != nil || shard < 0 || shard >= Shards || !idPattern.MatchString(ses) {
			t.Fatalf("ShardOf(%s) = %d, %v", ses, shard, err)
		}
		shards[shard] = true
		dsp := fresh(ModelDispatchID(ses, 7))
		for _, id := range []string{
			fresh(NewRunID(ses, entropy(1000+i))), fresh(NewDispatchID(ses, entropy(2000+i))), dsp,
			fresh(ModelDispatchID(ses, 8)), fresh(ChildRunID(dsp, 0)), fresh(ChildRunID(dsp, 1)), fresh(ChildRunID(dsp, 63)),
		} {
			if got, err := ShardOf(id); err != nil || got != shard {
				t.Errorf("ShardOf(%s) = %d, %v; its session has %d", id, got, err, shard)
			}
		}
	}
	if len(shards) != Shards {
		t.Errorf("300 sessions use %d shards of %d", len(shards), Shards)
	}
}

// Derived ids stand in stored bytes: they must never change.
func TestDerivedIDsAreStable(t *testing.T) {
	const ses = "ses_03abcdefghijklmnop"
	dsp, err := ModelDispatchID(ses, 5)
	if want := "dsp_03vfsjznkbugenmpve"; err != nil || dsp != want {
		t.Errorf("ModelDispatchID = %s, %v; want %s", dsp, err, want)
	}
	run, err := ChildRunID(dsp, 2)
	if want := "run_0326oalzsp2fetwo2u"; err != nil || run != want {
		t.Errorf("ChildRunID = %s, %v; want %s", run, err, want)
	}
	if got, want := NewSessionID(Entropy{}), "ses_01aaaaaaaaaaaaaaaa"; got != want {
		t.Errorf("NewSessionID(zeros) = %s, want %s", got, want)
	}
}

func TestShardOfRefuses(t *testing.T) {
	for name, id := range map[string]string{
		"empty": "", "other prefix": "usr_03abcdefghijklmnop", "no prefix": "03abcdefghijklmnop", "shard 16": "ses_16abcdefghijklmnop",
		"one shard digit": "ses_3abcdefghijklmnopq", "short": "ses_03abcdefghijklmno", "long": "ses_03abcdefghijklmnopq",
		"upper case": "ses_03ABCDEFGHIJKLMNOP", "digit of another alphabet": "ses_03abcdefghijklmn01", "new line": "ses_03abcdefghijklmnop\n",
		"a path": "ses_03/../../../../abc", "key characters": "ses_03abcdefgh{}:*?[mn",
	} {
		if n, err := ShardOf(id); !errors.Is(err, ErrBadID) {
			t.Errorf("%s: ShardOf(%q) = %d, %v; want ErrBadID", name, id, n, err)
		}
		for _, f := range []func() (string, error){
			func() (string, error) { return NewRunID(id, Entropy{}) },
			func() (string, error) { return NewDispatchID(id, Entropy{}) },
			func() (string, error) { return ModelDispatchID(id, 1) },
			func() (string, error) { return ChildRunID(id, 1) },
		} {
			if got, err := f(); !errors.Is(err, ErrBadID) || got != "" {
				t.Errorf("%s: from %q came %q, %v; want ErrBadID", name, id, got, err)
			}
		}
	}
}
