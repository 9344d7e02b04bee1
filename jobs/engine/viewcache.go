package engine

import (
	"sync"

	"forkyard/forkcore"
)

// viewCache keeps what replaying main logs gave, so that a turn reads and
// hashes only what it adds. A log is append-only, so a view of its beginning
// stays true whoever wrote on; the oldest go when the bytes are too many.
type viewCache struct {
	mu    sync.Mutex
	views map[string]*forkcore.View
	order []string // last used last
	bytes int64
}

// viewBytesKept bounds the bytes of the conversations that are kept.
const viewBytesKept = 128 << 20

// get gives a view of one's own; nil = none is kept.
func (c *viewCache) get(sessionID string) *forkcore.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.views[sessionID]
	if v == nil {
		return nil
	}
	return v.Clone()
}

// put keeps a view unless a longer one is there.
func (c *viewCache) put(sessionID string, v *forkcore.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.views[sessionID]; old != nil {
		if old.Len > v.Len {
			return
		}
		c.drop(sessionID)
	}
	if v.Prefix.Len() > viewBytesKept {
		return
	}
	for c.bytes+v.Prefix.Len() > viewBytesKept {
		c.drop(c.order[0])
	}
	if c.views == nil {
		c.views = map[string]*forkcore.View{}
	}
	c.views[sessionID] = v.Clone()
	c.order = append(c.order, sessionID)
	c.bytes += v.Prefix.Len()
}

func (c *viewCache) drop(sessionID string) {
	c.bytes -= c.views[sessionID].Prefix.Len()
	delete(c.views, sessionID)
	for i, id := range c.order {
		if id == sessionID {
			c.order = append(c.order[:i:i], c.order[i+1:]...)
			return
		}
	}
}
