package anthropic

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"forkyard/forkcore"
)

const (
	// maxLimits and maxLimitName bound what a response can make this program store.
	maxLimits    = 32
	maxLimitName = 64
)

// limitsOf reads the rate limits that a response's headers tell, ordered by name; nil = none. A family that is not
// known is kept under its own name; those of priority and fast requests have it in front, as "fast-input-tokens". One
// whose limit or remainder is no count is left out, and a reset that is no time is not told.
// Source: https://platform.claude.com/docs/en/api/rate-limits#response-headers
func limitsOf(h http.Header) []forkcore.RateLimit {
	var limits []forkcore.RateLimit
	for header := range h {
		name, ok := strings.CutSuffix(strings.ToLower(header), "-limit")
		if !ok {
			continue
		}
		family, ok := strings.CutPrefix(name, "anthropic-")
		if !ok {
			continue
		}
		if plain, ok := strings.CutPrefix(family, "ratelimit-"); ok {
			family = plain
		} else if !strings.HasPrefix(family, "priority-") && !strings.HasPrefix(family, "fast-") {
			continue
		}
		l := forkcore.RateLimit{Name: family}
		if family == "" || len(family) > maxLimitName || !setQuantity(&l.Limit, h.Get(header)) || !setQuantity(&l.Remaining, h.Get(name+"-remaining")) {
			continue
		}
		if t, err := time.Parse(time.RFC3339, h.Get(name+"-reset")); err == nil {
			l.Reset = t.UTC()
		}
		limits = append(limits, l)
	}
	slices.SortFunc(limits, func(a, b forkcore.RateLimit) int { return strings.Compare(a.Name, b.Name) })
	return limits[:min(len(limits), maxLimits)]
}

func setQuantity(dst *int64, value string) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return false
	}
	*dst = n
	return true
}
