package redisstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"forkyard/forkcore"
)

// fields is a hash as Redis keeps it. Absent and empty mean zero.
type fields map[string]string

// fieldReader reads values out of fields and remembers the first field that is not what
// it should be.
type fieldReader struct {
	fields fields
	err    error
}

func (r *fieldReader) bad(field string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("stored field %s = %.60q: %w", field, r.fields[field], err)
	}
}

func (r *fieldReader) text(field string) string { return r.fields[field] }

func (r *fieldReader) flag(field string) bool { return r.fields[field] == "1" }

func (r *fieldReader) int(field string) int64 {
	v := r.fields[field]
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		r.bad(field, err)
	}
	return n
}

// time reads milliseconds of the Unix epoch.
func (r *fieldReader) time(field string) time.Time {
	n := r.int(field)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

func (r *fieldReader) digest(field string) forkcore.Digest {
	v := r.fields[field]
	if v == "" {
		return forkcore.Digest{}
	}
	d, err := forkcore.ParseDigest(v)
	if err != nil {
		r.bad(field, err)
	}
	return d
}

func (r *fieldReader) usage(prefix string) forkcore.Usage {
	return forkcore.Usage{
		Input:        r.int(prefix + "input"),
		CacheWrite5m: r.int(prefix + "write_5m"),
		CacheWrite1h: r.int(prefix + "write_1h"),
		CacheRead:    r.int(prefix + "read"),
		Output:       r.int(prefix + "output"),
	}
}

func (r *fieldReader) cost(prefix string) forkcore.Cost {
	return forkcore.Cost{NanoUSD: r.int(prefix + "cost"), Unpriced: r.int(prefix + "unpriced")}
}

// jsonField reads a field that holds JSON; nil when it is empty.
func jsonField[T any](r *fieldReader, field string) *T {
	v := r.fields[field]
	if v == "" {
		return nil
	}
	t := new(T)
	if err := json.Unmarshal([]byte(v), t); err != nil {
		r.bad(field, err)
		return nil
	}
	return t
}

// jsonOrEmpty is the opposite of jsonField.
func jsonOrEmpty[T any](v *T) string {
	if v == nil {
		return ""
	}
	return encode(v)
}

func digestOrEmpty(d forkcore.Digest) string {
	if d.IsZero() {
		return ""
	}
	return d.String()
}

// bill is what one settled request adds to run, dispatch and session.
func bill(row forkcore.RequestRow) fields {
	b := fields{}
	add := func(field string, n int64) {
		if n != 0 {
			b[field] = formatInt(n)
		}
	}
	if u := row.Usage; u != nil {
		add("input", u.Input)
		add("write_5m", u.CacheWrite5m)
		add("write_1h", u.CacheWrite1h)
		add("read", u.CacheRead)
		add("output", u.Output)
	}
	if row.Cost != nil {
		add("cost", *row.Cost)
	} else {
		add("unpriced", 1)
	}
	return b
}

// nonEmpty leaves out empty values, which mean the same as absent ones.
func nonEmpty(f fields) fields {
	maps.DeleteFunc(f, func(_, v string) bool { return v == "" })
	return f
}
