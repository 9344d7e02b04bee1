package forkcore

import "fmt"

// Diagnostics is the diagnostics member of a request: with which earlier
// message the provider shall compare it. A request without an earlier one asks
// as well (null), so that later ones can name it.
// Source: Messages API, cache diagnostics.
type Diagnostics struct {
	// PreviousMessageID is the provider's id of that message; empty = null.
	PreviousMessageID string `json:"previous_message_id,omitempty"`
}

// append adds the member to a request's close.
func (d *Diagnostics) append(dst []byte) []byte {
	if d == nil {
		return dst
	}
	dst = append(dst, `,"diagnostics":{"previous_message_id":`...)
	if d.PreviousMessageID == "" {
		return append(dst, "null}"...)
	}
	return append(AppendString(dst, d.PreviousMessageID), '}')
}

// The verdicts of the provider. Others may come: they are kept as they are.
const (
	DiagnosisMessages = "messages_changed"
	DiagnosisNotFound = "previous_message_not_found"
	// DiagnosisUnavailable is given when something else differs that affects the prompt, or the difference lies too far back.
	DiagnosisUnavailable = "unavailable"
	// DiagnosisPending is our word for a comparison that was still running when the response began.
	DiagnosisPending = "pending"
)

// Diagnosis is the provider's answer: where the prompt parts from that of the
// earlier message, whether or not the cache still held it. No Diagnosis means
// that there was nothing to compare or no difference.
type Diagnosis struct {
	// Type is model_changed, tools_changed, system_changed or one of the constants above.
	Type string `json:"type"`
	// Missed is the provider's estimate of the input tokens behind the difference; nil = not told.
	Missed *int64 `json:"cache_missed_input_tokens,omitempty"`
}

func (d Diagnosis) String() string {
	if d.Missed != nil {
		return fmt.Sprintf("%s, about %d tokens", d.Type, *d.Missed)
	}
	return d.Type
}

// reason reports whether d says why an entry was not read. Compared with a
// request that went on behind the entry, as each sibling does with its own
// directive, a change of messages is what was to be expected.
func (d Diagnosis) reason(compared *CacheEntry) bool {
	switch d.Type {
	case DiagnosisNotFound, DiagnosisUnavailable, DiagnosisPending:
		return false
	case DiagnosisMessages:
		return compared != nil && !compared.Inside
	}
	return true
}
