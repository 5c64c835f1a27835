package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/harpcaller/harp"
)

// maxCached is how many procedures a Cache keeps.
const maxCached = 1024

// Cache keeps what Compile made, by what it was made of: hosts that offer the same
// procedures share it. The zero value works; it is safe for concurrent use.
type Cache struct {
	mu   sync.Mutex // guards what follows; never held while compiling
	kept map[[sha256.Size]byte]*Args
}

// Get returns what Compile returns. Errors: as Compile; they are not kept.
func (c *Cache) Get(doc harp.ProcedureDoc) (*Args, error) {
	key := digest(doc)
	c.mu.Lock()
	a := c.kept[key]
	c.mu.Unlock()
	if a != nil {
		return a, nil
	}
	a, err := Compile(doc)
	if err != nil {
		return nil, err
	}
	c.keep(key, a)
	return a, nil
}

// keep adds a to the cache; when that is full some other entry has to go.
func (c *Cache) keep(key [sha256.Size]byte, a *Args) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[[sha256.Size]byte]*Args{}
	}
	for other := range c.kept {
		if len(c.kept) < maxCached {
			break
		}
		delete(c.kept, other)
	}
	c.kept[key] = a
}

// digest is of all that Compile looks at, each part behind its length.
func digest(doc harp.ProcedureDoc) [sha256.Size]byte {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part(doc.Args)
	for _, p := range doc.Params {
		part([]byte(p))
	}
	return [sha256.Size]byte(h.Sum(nil))
}
