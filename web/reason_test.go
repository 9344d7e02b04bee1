package web

import (
	"strings"
	"testing"
)

func TestReasonText(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", ""},
		{"plain <b>words</b>", "plain &lt;b&gt;words&lt;/b&gt;"},
		{
			"this one may go at 2026-12-01T09:30:05Z, and 2026-13-01T09:30:05Z is none",
			`this one may go at <time datetime="2026-12-01T09:30:05Z">2026-12-01 09:30:05 UTC</time>, and 2026-13-01T09:30:05Z is none`,
		},
		{"Give another key on the page “Key and limits” (/provider), or wait", `Give another key on the page <a href="/provider">Key and limits</a>, or wait`},
		{"2026-12-01T09:30:05Z", `<time datetime="2026-12-01T09:30:05Z">2026-12-01 09:30:05 UTC</time>`},
	} {
		var b strings.Builder
		if err := reasonText(tc.in).Render(t.Context(), &b); err != nil || b.String() != tc.want {
			t.Errorf("%q is drawn as\n%s (%v); want\n%s", tc.in, b.String(), err, tc.want)
		}
	}
}
