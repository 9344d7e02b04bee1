package forkcore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestForecast(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	const gb = 1 << 30
	sample := func(ago time.Duration, used int64) MemorySample { return MemorySample{At: now.Add(-ago), Used: used} }
	for name, c := range map[string]struct {
		used, limit int64
		samples     []MemorySample
		want        Forecast
		scarce      bool
	}{
		"no sample":             {used: gb, limit: 10 * gb, want: Forecast{Growth: GrowthUnknown}},
		"too short":             {used: 2 * gb, limit: 10 * gb, samples: []MemorySample{sample(59*time.Minute, gb)}, want: Forecast{Growth: GrowthUnknown, Over: 59 * time.Minute}},
		"no limit":              {used: 2 * gb, samples: []MemorySample{sample(2*time.Hour, gb)}, want: Forecast{Growth: GrowthUnknown}},
		"flat":                  {used: gb, limit: 10 * gb, samples: []MemorySample{sample(2*time.Hour, gb)}, want: Forecast{Growth: GrowthNone, Over: 2 * time.Hour}},
		"falling":               {used: gb, limit: 10 * gb, samples: []MemorySample{sample(24*time.Hour, 2*gb)}, want: Forecast{Growth: GrowthNone, Over: 24 * time.Hour}},
		"a gigabyte a day":      {used: 2 * gb, limit: 10 * gb, samples: []MemorySample{sample(24*time.Hour, gb)}, want: Forecast{Growth: GrowthSteady, PerDay: gb, Left: 8 * 24 * time.Hour, Over: 24 * time.Hour}},
		"since the first":       {used: 2 * gb, limit: 4 * gb, samples: []MemorySample{sample(6*time.Hour, gb), sample(time.Hour, 0)}, want: Forecast{Growth: GrowthSteady, PerDay: 4 * gb, Left: 12 * time.Hour, Over: 6 * time.Hour}, scarce: true},
		"older does not count":  {used: 2 * gb, limit: 10 * gb, samples: []MemorySample{sample(25*time.Hour, 0), sample(12*time.Hour, 2*gb)}, want: Forecast{Growth: GrowthNone, Over: 12 * time.Hour}},
		"only older":            {used: 2 * gb, limit: 10 * gb, samples: []MemorySample{sample(25*time.Hour, 0)}, want: Forecast{Growth: GrowthUnknown}},
		"just under three days": {used: 4 * gb, limit: 7*gb - 1<<20, samples: []MemorySample{sample(24*time.Hour, 3*gb)}, want: Forecast{Growth: GrowthSteady, PerDay: gb, Left: 3*24*time.Hour - 85*time.Second, Over: 24 * time.Hour}, scarce: true},
		"full":                  {used: 10 * gb, limit: 9 * gb, samples: []MemorySample{sample(24*time.Hour, gb)}, want: Forecast{Growth: GrowthSteady, PerDay: 9 * gb, Over: 24 * time.Hour}, scarce: true},
		"full and flat":         {used: 86, limit: 100, samples: []MemorySample{sample(24*time.Hour, 86)}, want: Forecast{Growth: GrowthNone, Over: 24 * time.Hour}, scarce: true},
		"85 percent":            {used: 85, limit: 100, want: Forecast{Growth: GrowthUnknown}},
		"for ever":              {used: 1e9, limit: 1 << 62, samples: []MemorySample{sample(24*time.Hour, 1e9-1)}, want: Forecast{Growth: GrowthSteady, PerDay: 1, Left: maxLeft, Over: 24 * time.Hour}},
	} {
		m := Memory{MemorySample: MemorySample{At: now, Used: c.used}, Limit: c.limit, Samples: c.samples}
		got := m.Forecast()
		if d := got.Left - c.want.Left; d.Abs() <= time.Second {
			got.Left = c.want.Left
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if m.Scarce() != c.scarce {
			t.Errorf("%s: scarce = %v", name, m.Scarce())
		}
	}
}
