package forkcore

import (
	"slices"
	"time"
)

// Archived says where a session lies that was put away: the database holds only what lists show of it.
type Archived struct {
	At time.Time
	// Host is the name of the machine and Dir the absolute folder of the dashboard that has the file.
	Host, Dir string
	// Bytes is the length of the file.
	Bytes int64
	// SHA256 is the digest of the file.
	SHA256 Digest
}

// MemorySample is how much memory the database used at a moment of its own clock, in bytes.
type MemorySample struct {
	At   time.Time
	Used int64
}

// Memory is the database's memory in bytes.
type Memory struct {
	MemorySample
	// Limit is what it may use: its own limit, or, without one, the memory of its host; 0 = not told.
	Limit int64
	// Own is false when Limit is the memory of the host, which others use as well.
	Own bool
	// Samples are what was used before, oldest first, about one a minute.
	Samples []MemorySample
}

// UsedPart is the part of the limit in use, 0 to about 1; 0 without a limit.
func (m Memory) UsedPart() float64 {
	if m.Limit <= 0 {
		return 0
	}
	return float64(m.Used) / float64(m.Limit)
}

// Growth says what a forecast knows.
type Growth string

// The kinds of growth.
const (
	GrowthUnknown Growth = "unknown" // not watched for long enough, or there is no limit
	GrowthNone    Growth = "none"    // flat or falling
	GrowthSteady  Growth = "growing"
)

const (
	// forecastWindow is how far a forecast looks back, forecastLeast how much it must have seen.
	forecastWindow = 24 * time.Hour
	forecastLeast  = time.Hour
)

// Forecast is how long the memory lasts at the present rate.
type Forecast struct {
	Growth Growth
	// PerDay is by how many bytes it grows in a day; Left is the time until the limit. Both are 0 unless Growth is GrowthSteady.
	PerDay int64
	Left   time.Duration
	// Over is the time that the rate was measured over.
	Over time.Duration
}

// maxLeft keeps a duration from overflowing: nobody plans for more than a century.
const maxLeft = 100 * 365 * 24 * time.Hour

// Forecast compares what is used now with the oldest sample of the last 24 hours.
func (m Memory) Forecast() Forecast {
	i := slices.IndexFunc(m.Samples, func(s MemorySample) bool { return m.At.Sub(s.At) <= forecastWindow })
	if i < 0 || m.Limit <= 0 {
		return Forecast{Growth: GrowthUnknown}
	}
	f := Forecast{Over: m.At.Sub(m.Samples[i].At)}
	grown := m.Used - m.Samples[i].Used
	switch {
	case f.Over < forecastLeast:
		f.Growth = GrowthUnknown
	case grown <= 0:
		f.Growth = GrowthNone
	default:
		f.Growth = GrowthSteady
		perSecond := float64(grown) / f.Over.Seconds()
		f.PerDay = int64(perSecond * (24 * time.Hour).Seconds())
		seconds := float64(max(0, m.Limit-m.Used)) / perSecond
		f.Left = time.Duration(min(seconds, maxLeft.Seconds())) * time.Second
	}
	return f
}

const (
	// scarcePart and scarceLeft are where people are warned on every page.
	scarcePart = 0.85
	scarceLeft = 3 * 24 * time.Hour
)

// Scarce reports whether somebody should do something about the memory before the database refuses writes.
func (m Memory) Scarce() bool {
	f := m.Forecast()
	return m.UsedPart() > scarcePart || f.Growth == GrowthSteady && f.Left < scarceLeft
}

// Storage is what is known of where sessions are kept.
type Storage struct {
	// Memory is nil for a database that tells nothing of it: the in-process one.
	Memory *Memory
	// Sessions are all of them, those that take the most memory first, then those that were not measured yet, then the archived ones.
	Sessions []StoredSession
	// Archive says when sessions are put away; its Dir is empty where they never are.
	Archive ArchivePolicy
}

// StoredSession is a session and the memory it takes in bytes; 0 = not measured yet, or archived.
type StoredSession struct {
	Session Session
	Bytes   int64
}

// ArchivePolicy says where idle sessions are put away and when.
type ArchivePolicy struct {
	// Host and Dir are as in Archived.
	Host, Dir string
	// After is for how long a session must not have changed; 0 = age is no reason.
	After time.Duration
	// Above is the part of the memory limit above which the oldest ones go earlier; 0 = memory is no reason.
	Above float64
}
