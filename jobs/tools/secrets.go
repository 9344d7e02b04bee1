package tools

import (
	"cmp"
	"slices"
	"strings"
)

const secretRemoved = "[secret removed]"

// minSecretLine is the length from which one line of a secret of many lines
// (a PEM key) counts as a secret of its own: tools show files line by line.
const minSecretLine = 8

// redactor replaces known secret values.
type redactor struct {
	replacer *strings.Replacer // nil without secrets
	// longest is the length of the longest secret in bytes.
	longest int
}

func newRedactor(secrets []string) *redactor {
	var values []string
	for _, secret := range secrets {
		secret = strings.TrimSpace(secret)
		if secret == "" {
			continue
		}
		values = append(values, secret)
		if strings.Contains(secret, "\n") {
			for line := range strings.Lines(secret) {
				if line = strings.TrimSpace(line); len(line) >= minSecretLine {
					values = append(values, line)
				}
			}
		}
	}
	if len(values) == 0 {
		return &redactor{}
	}
	// The replacer tries its arguments in order at each place: the longest
	// first, so that a secret that begins with another one is removed whole.
	slices.SortStableFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(values))
	for _, value := range values {
		pairs = append(pairs, value, secretRemoved)
	}
	return &redactor{replacer: strings.NewReplacer(pairs...), longest: len(values[0])}
}

func (r *redactor) whole(s string) string {
	if r.replacer == nil {
		return s
	}
	return r.replacer.Replace(s)
}

// margin is how many bytes more than it shows a caller must keep of text that
// it cuts, so that head and tail can tell a secret at the cut.
func (r *redactor) margin() int { return r.longest }

// head redacts the beginning of a longer text. What may be the first part of a
// secret that was cut, at most longest-1 bytes, is dropped from its end.
func (r *redactor) head(s string) string {
	if r.replacer == nil {
		return s
	}
	s = r.replacer.Replace(s)
	return s[:max(0, len(s)-(r.longest-1))]
}

// tail is head for the end of a longer text.
func (r *redactor) tail(s string) string {
	if r.replacer == nil {
		return s
	}
	s = r.replacer.Replace(s)
	return s[min(len(s), r.longest-1):]
}
