package redisstore

import (
	"reflect"
	"strings"
	"testing"

	"forkyard/forkcore"
)

// everything is a hash with a value in every field that any object has.
func everything() fields {
	digest := forkcore.DigestOf([]byte("d")).String()
	f := fields{
		"snapshot": digest, "head": digest, "archive_sha256": digest, "reason": `{"code":"c"}`, "last_reason": `{"code":"c"}`, "report": `{"text":"t"}`,
		"warm": `{"tokens":1}`, "_slot": `{"messages":1}`, "_slot_run": "r", "_slot_version": "1", "_slot_at": "1", "betas": "a b", "quote": `{"model":"m"}`, "thinking": `{}`, "runs": "a b",
		"history": `{"at":1,"type":"closed"},{"at":2,"type":"opened"}`,
	}
	for name := range strings.FieldsSeq(`id title workspace root model mode permissions effort session agent kind directive parent
		dispatch tool_use state stop last_tool last_tool_detail active_run last_run last_state gate_mode gate leader_run source account notify retry_of
		agent_type archive_host archive_dir`) {
		f[name] = "x"
	}
	for name := range strings.FieldsSeq(`budget interactive background depth descendants created updated version active_runs reserved input write_5m
		write_1h read output cost unpriced index leader wake started ended requests tool_uses inherited inherited_read remaining at_risk
		generation awaited resumed archived_at archive_bytes deadline undelivered cold first_input first_write_5m first_write_1h first_read first_output first_cost first_unpriced`) {
		f[name] = "1"
	}
	return f
}

// TestNoFieldIsForgotten: a field added to a domain struct must be read from its hash.
func TestNoFieldIsForgotten(t *testing.T) {
	session, err := parseSession(everything())
	if err != nil {
		t.Fatal(err)
	}
	run, err := parseRun(everything())
	if err != nil {
		t.Fatal(err)
	}
	dispatch, err := parseDispatch(everything())
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []any{session, *session.Archived, run, dispatch, session.Usage, dispatch.FirstRequestUsage, dispatch.FirstRequests} {
		v := reflect.ValueOf(object)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not read", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
}

func TestBadFields(t *testing.T) {
	for field, value := range map[string]string{
		"version": "1.5e3", "created": "yesterday", "snapshot": "abc", "reason": "{", "report": "[]", "cost": "9223372036854775808",
	} {
		f := everything()
		f[field] = value
		_, err := parseRun(f)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s = %q: error = %v, want one that names the field", field, value, err)
		}
	}
	f := everything()
	f["history"] = "x"
	if _, err := parseDispatch(f); err == nil {
		t.Error("broken gate history: no error")
	}
}

func TestDecodeEntryErrors(t *testing.T) {
	for _, record := range []string{"", "1", "x:{}", ":{}", "1:", "1:[]", `1:{"blob":"zz"}`} {
		if _, err := decodeEntry(record, 7); err == nil || !strings.Contains(err.Error(), "7") {
			t.Errorf("record %q: error = %v, want one that names the entry", record, err)
		}
	}
}

func TestEncodeEntryErrors(t *testing.T) {
	blob, marker := forkcore.DigestOf(nil), &forkcore.Marker{}
	for name, e := range map[string]forkcore.Entry{
		"no kind":                {Blob: blob},
		"message without a blob": {Kind: forkcore.EntryMessage},
		"message with a marker":  {Kind: forkcore.EntryMessage, Blob: blob, Marker: marker},
		"marker without content": {Kind: forkcore.EntryMarker},
		"marker with a blob":     {Kind: forkcore.EntryMarker, Blob: blob, Marker: marker},
	} {
		if record, err := encodeEntry(e); err == nil {
			t.Errorf("%s: encoded as %s, want an error", name, record)
		}
	}
}
