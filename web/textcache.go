package web

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// textCache keeps what was made of texts, the most recently used up to a number of bytes. A live page draws the same
// messages to many readers, many times.
type textCache struct {
	mu     sync.Mutex
	limit  int
	size   int
	recent *list.List // of *cachedText, the last used first
	byKey  map[textKey]*list.Element
}

type textKey [sha256.Size]byte

type cachedText struct {
	key  textKey
	made []byte
}

// entryOverhead is about what an entry costs besides its bytes.
const entryOverhead = 256

func newTextCache(limit int) *textCache {
	return &textCache{limit: limit, recent: list.New(), byKey: map[textKey]*list.Element{}}
}

// get gives what draw makes of a text. The kind tells apart what different functions make of it. Nobody may change the
// bytes. Two that ask at once for what is not there may both make it.
func (c *textCache) get(kind, text string, draw func(string) []byte) []byte {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write([]byte(text))
	key := textKey(h.Sum(nil))

	c.mu.Lock()
	if e, ok := c.byKey[key]; ok {
		c.recent.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*cachedText).made
	}
	c.mu.Unlock()

	made := draw(text)
	c.put(&cachedText{key: key, made: made})
	return made
}

func (c *textCache) put(t *cachedText) {
	cost := len(t.made) + entryOverhead
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[t.key]; ok || cost > c.limit/4 {
		return
	}
	c.byKey[t.key] = c.recent.PushFront(t)
	c.size += cost
	for c.size > c.limit {
		last := c.recent.Back()
		old := c.recent.Remove(last).(*cachedText)
		delete(c.byKey, old.key)
		c.size -= len(old.made) + entryOverhead
	}
}
