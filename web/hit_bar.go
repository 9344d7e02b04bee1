package web

import (
	"fmt"
	"math"

	"forkyard/forkcore"
)

// hitBarView is how much of a run's input the cache served: what it inherited and what it added itself, side by side.
// Lengths are thousandths of the whole input.
type hitBarView struct {
	Known                                  bool // false: nothing was sent, or nothing is known of it
	Inherited, InheritedRead, Own, OwnRead int64
	Text                                   string // the figures beside the bar
	Label                                  string // the same for those who do not see it
}

const hitBarLength = 1000

func newHitBar(r forkcore.Run) hitBarView {
	in := r.Usage.TotalInput()
	if in == 0 {
		return hitBarView{Text: "–", Label: "Hit rate: nothing known yet"}
	}
	inherited := clamp(r.InheritedTokens, in)
	inheritedRead := clamp(r.InheritedRead, inherited)
	own := in - inherited
	ownRead := clamp(r.Usage.CacheRead-r.InheritedRead, own)
	v := hitBarView{Known: true, Inherited: inherited * hitBarLength / in, InheritedRead: inheritedRead * hitBarLength / in}
	v.Own, v.OwnRead = hitBarLength-v.Inherited, ownRead*hitBarLength/in
	rates := r.HitRate()
	v.Text = fmt.Sprintf("inherited %s · own %s", wholePercent(rates.Inherited), wholePercent(rates.Own))
	v.Label = fmt.Sprintf("Read from the cache: %s of %s inherited tokens, %s of %s own tokens",
		grouped(inheritedRead), grouped(inherited), grouped(ownRead), grouped(own))
	return v
}

// clamp keeps n from 0 to limit.
func clamp(n, limit int64) int64 { return max(0, min(n, limit)) }

// wholePercent shows a fraction without decimals. What is not all is not 100 %, and what is not nothing is not 0 %.
func wholePercent(f *float64) string {
	if f == nil {
		return "–"
	}
	n := int(math.Round(100 * *f))
	if n >= 100 && *f < 1 {
		n = 99
	}
	if n <= 0 && *f > 0 {
		n = 1
	}
	return fmt.Sprintf("%d %%", n)
}
