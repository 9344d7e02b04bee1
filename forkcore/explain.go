package forkcore

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is what Explain looks at after a response. All of it is about one
// request; what is not known is left out.
type Outcome struct {
	Usage    Usage
	Expected *int64
	// Best is the entry whose tokens were expected.
	Best *CacheEntry
	// Expired is a longer entry that had run out when the request was sent; nil = none.
	Expired *CacheEntry
	// Lost is a longer entry of what its agent sent before, alive when the request was sent, whose bytes this request
	// does not start with; nil = none.
	Lost *CacheEntry
	// Sent gives the canonical bytes of the request that wrote Lost. It is called only when they are needed.
	Sent func() ([]byte, error)
	// Raced is a longer entry that prefixes this request and was written by another one, whose response began after
	// this one was sent; nil = none.
	Raced *CacheEntry
	// Prefix is the request, Marks are those it was sent with.
	Prefix *Prefix
	Marks  []Mark
	// Scope is where it went.
	Scope Scope
	// Diagnosis is the provider's comparison with the request that wrote Compared.
	Diagnosis *Diagnosis
	Compared  *CacheEntry
	// MinCacheable is the model's minimum in tokens; 0 = not known.
	MinCacheable int64
	// SentAt is when the request was sent.
	SentAt time.Time
}

// Explain says why a request read less than it could have; nil when it read
// what was expected, or when nothing was expected and nothing was to be had.
// An expectation that was estimated from bytes counts as met within a tenth.
//
// Causes are tried in the order of their certainty. First what our own bytes
// and records prove: model, tools, system, thinking or messages (the bytes
// differ), too_short (all of the input was counted), look_back (no mark stands
// near enough), other_key (endpoint, workspace or beta set differ), race (the
// entry was born while the request was under way). Then provider, the verdict of the
// provider's diagnostics. Then what is inferred, and says so: expired (a
// lifetime is a minimum, so only the provider knows), too_short (of the part up to the last mark),
// other_key (of two keys whose workspaces nobody named). Then unknown, with
// what was looked at in vain. It never guesses silently. What befell a longer
// entry does not explain why the one that was expected was not read: then it is told in the detail.
func Explain(o Outcome) *MissReason {
	missed := o.Expected != nil && *o.Expected > 0 && !o.expectation().ReadBy(o.Usage)
	if !missed {
		o.Best = nil
	}
	for _, e := range []**CacheEntry{&o.Expired, &o.Lost, &o.Raced} {
		if *e != nil && (*e).ReadBy(o.Usage) {
			*e = nil
		}
	}
	if !missed && o.Expired == nil && o.Lost == nil && o.Raced == nil {
		return o.tooShort()
	}
	var detail, notes []string
	if missed {
		detail = append(detail, fmt.Sprintf("expected %d tokens from the cache, read %d", *o.Expected, o.Usage.CacheRead))
	}
	say := func(code, path string, sentences ...string) *MissReason {
		return &MissReason{Code: code, Path: path, Detail: strings.Join(append(detail, sentences...), "; ")}
	}

	if o.Lost != nil {
		m, note := o.changed()
		note = fmt.Sprintf("an entry of %d tokens was alive, read %d; %s", o.Lost.Tokens, o.Usage.CacheRead, note)
		if m != nil && !missed {
			return say(m.Code, m.Path, note)
		}
		notes = append(notes, note)
	}
	short := o.tooShort()
	if short != nil && o.counted() {
		return say(short.Code, "", short.Detail)
	}
	if o.Best != nil && o.Prefix != nil {
		if next, n, beyond := o.Prefix.beyondLookBack(o.Best.Bytes, o.Marks); beyond && next != nil {
			return say("look_back", next.Block, fmt.Sprintf("the next mark stands %d positions behind the entry, the provider looks at %d", n, lookBackWindow))
		} else if beyond {
			return say("look_back", "", "no mark stands on the entry or behind it")
		}
	}
	apart, proven := o.apart()
	if proven {
		return say("other_key", "", apart)
	}
	if e := o.Raced; e != nil {
		raced := fmt.Sprintf("request %d of %s wrote an entry of %d tokens, and its response had not begun when this one was sent; read %d", e.N, e.RunID, e.Tokens, o.Usage.CacheRead)
		if !missed {
			return say("race", "", raced)
		}
		notes = append(notes, raced)
	}

	if d := o.Diagnosis; d != nil {
		if d.reason(o.Compared) {
			return say("provider", "", "the provider's diagnostics: "+d.String())
		}
		notes = append(notes, "the provider's diagnostics name no cause: "+d.String())
	}

	if x := o.Expired; x != nil {
		over := o.SentAt.Sub(x.ExpiresAt())
		ran := fmt.Sprintf("an entry of %d tokens ran out %s before; read %d", x.Tokens, over.Round(time.Second), o.Usage.CacheRead)
		if over < 0 {
			ran = fmt.Sprintf("an entry of %d tokens was lost when the provider's cache began anew; read %d", x.Tokens, o.Usage.CacheRead)
		}
		if !missed {
			return say("expired", "", ran, "inferred: a lifetime is the least that is promised")
		}
		notes = append(notes, ran)
	}
	if short != nil {
		return say(short.Code, "", short.Detail)
	}
	if apart != "" {
		return say("other_key", "", apart)
	}
	return say("unknown", "", notes...)
}

// expectation is the entry that was expected, or one that stands for the count alone.
func (o Outcome) expectation() CacheEntry {
	e := CacheEntry{Exact: true}
	if o.Best != nil {
		e = *o.Best
	}
	e.Tokens = *o.Expected
	return e
}

// changed compares this request with the one that wrote Lost. Without a reason
// the detail says why there is none.
func (o Outcome) changed() (m *MissReason, detail string) {
	if o.Sent == nil || o.Prefix == nil {
		return nil, "what was sent before was not compared with it"
	}
	before, err := o.Sent()
	if err != nil {
		return nil, "what was sent before could not be compared with it: " + err.Error()
	}
	if m := difference(before, o.Prefix.Bytes(), o.Lost.Bytes); m != nil {
		return m, m.Detail
	}
	return nil, "its bytes are those that were sent before"
}

// tooShort is nil for a request that wrote or read something, and for one that
// is long enough as far as can be told.
func (o Outcome) tooShort() *MissReason {
	if o.Usage.Cached() > 0 || o.MinCacheable == 0 {
		return nil
	}
	limit := fmt.Sprintf("this model caches prefixes from %d", o.MinCacheable)
	if o.counted() {
		return &MissReason{Code: "too_short", Detail: fmt.Sprintf("%d tokens; %s", o.Usage.TotalInput(), limit)}
	}
	if o.Prefix == nil || len(o.Marks) == 0 {
		return nil
	}
	last := int64(0)
	for _, m := range o.Marks {
		last = max(last, m.Offset)
	}
	tail, _ := o.Prefix.Tail()
	if marked := o.Usage.TotalInput() * last / max(tail, 1); marked < o.MinCacheable {
		return &MissReason{Code: "too_short", Detail: fmt.Sprintf("inferred from bytes: about %d tokens up to the last mark; %s", marked, limit)}
	}
	return nil
}

// counted reports whether the whole input is under the model's minimum by the provider's own count.
func (o Outcome) counted() bool { return o.Usage.TotalInput() < o.MinCacheable }

// apart compares the scope of the entry that was to be read with that of the request.
func (o Outcome) apart() (detail string, proven bool) {
	for _, e := range []*CacheEntry{o.Best, o.Raced, o.Expired, o.Lost} {
		if e != nil {
			return o.Scope.apart(e.Scope)
		}
	}
	return "", false
}
