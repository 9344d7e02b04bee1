package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

const (
	// samplePeriod is the time between two samples of the memory, whichever process takes them; a round may come a little early.
	samplePeriod = time.Minute
	sampleSlack  = 5 * time.Second
	// samplesKept are a little more than a day of them.
	samplesKept = 1500
)

// Memory reads what Redis says of its memory; nil for an in-process stand-in, which says nothing.
func (s *Store) Memory(ctx context.Context) (*forkcore.Memory, error) {
	if s.inProcess {
		return nil, nil
	}
	var info *redis.StringCmd
	var now *redis.TimeCmd
	var samples *redis.StringSliceCmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		info = p.Info(ctx, "memory")
		now = p.Time(ctx)
		samples = p.LRange(ctx, keyMemory, 0, -1)
		return nil
	})
	if err != nil {
		return nil, s.failure("read the memory of Redis", err)
	}
	m, err := parseMemory(info.Val())
	if err != nil {
		return nil, fmt.Errorf("redis at %s: %w", s.address, err)
	}
	m.At = now.Val().UTC()
	for _, text := range samples.Val() {
		sample, err := parseSample(text)
		if err != nil {
			return nil, err
		}
		m.Samples = append(m.Samples, sample)
	}
	return m, nil
}

// parseMemory reads INFO memory.
func parseMemory(info string) (*forkcore.Memory, error) {
	f := &fieldReader{fields: fields{}}
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			f.fields[name] = value
		}
	}
	if f.fields["used_memory"] == "" {
		return nil, fmt.Errorf("INFO memory does not report used_memory: allow INFO for this user")
	}
	m := &forkcore.Memory{Limit: f.int("maxmemory"), Own: true}
	m.Used = f.int("used_memory")
	if m.Limit == 0 {
		m.Limit, m.Own = f.int("total_system_memory"), false
	}
	return m, f.err
}

func parseSample(text string) (forkcore.MemorySample, error) {
	ms, used, _ := strings.Cut(text, ":")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return forkcore.MemorySample{}, fmt.Errorf("read memory sample %q: %w", text, err)
	}
	n, err := strconv.ParseInt(used, 10, 64)
	if err != nil {
		return forkcore.MemorySample{}, fmt.Errorf("read memory sample %q: %w", text, err)
	}
	return forkcore.MemorySample{At: time.UnixMilli(at).UTC(), Used: n}, nil
}

// SampleMemory notes how much memory is used, unless some process did less than a minute ago. taken reports which.
func (s *Store) SampleMemory(ctx context.Context) (taken bool, err error) {
	if s.inProcess {
		return false, nil
	}
	info, err := s.client.Info(ctx, "memory").Result()
	if err != nil {
		return false, s.failure("read the memory of Redis", err)
	}
	m, err := parseMemory(info)
	if err != nil {
		return false, fmt.Errorf("redis at %s: %w", s.address, err)
	}
	answer, err := s.alone.memory.Run(ctx, s.client, []string{keyMemory}, formatInt(m.Used), millis(samplePeriod-sampleSlack), samplesKept).Text()
	return answer == "1", s.failure("note the memory of Redis", err)
}
