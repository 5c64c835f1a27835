package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/harpcaller/harp"
)

// MaxCached is what the schemas that a Cache keeps may weigh.
const MaxCached = 64 << 20

// Key tells apart what Compile looks at.
type Key [sha256.Size]byte

// Cache keeps what Compile returned, by what it was made of: hosts that offer the same
// procedures share it. The zero value works; it is safe for concurrent use.
type Cache struct {
	compiling sync.Mutex // one at a time, which is as much as a schema may cost

	mu     sync.Mutex // guards what follows; never held while compiling
	kept   map[Key]compiled
	weight int // bytes
}

// compiled is what Compile returned. It has no error if there is one of the arguments.
type compiled struct {
	args *Args
	err  error
}

// weight is about what it takes in memory.
func (c compiled) weight() int {
	if c.err != nil {
		return 1024
	}
	return c.args.weight
}

// Get returns what Compile returns for the doc of that key. Errors: as Compile.
func (c *Cache) Get(key Key, doc harp.ProcedureDoc) (*Args, error) {
	if had, ok := c.lookUp(key); ok {
		return had.args, had.err
	}
	c.compiling.Lock()
	defer c.compiling.Unlock()
	if had, ok := c.lookUp(key); ok {
		return had.args, had.err
	}
	args, err := Compile(doc)
	c.addCompiled(key, compiled{args, err})
	return args, err
}

// Weight is what those weigh that it keeps, in bytes.
func (c *Cache) Weight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.weight
}

func (c *Cache) lookUp(key Key) (compiled, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had, ok := c.kept[key]
	return had, ok
}

// addCompiled adds one to the cache; when that is full some others have to go.
func (c *Cache) addCompiled(key Key, one compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[Key]compiled{}
	}
	c.weight += one.weight()
	for other, had := range c.kept {
		if c.weight <= MaxCached {
			break
		}
		c.weight -= had.weight()
		delete(c.kept, other)
	}
	c.kept[key] = one
}

// KeyOf is of all that Compile looks at, each part behind its length.
func KeyOf(doc harp.ProcedureDoc) Key {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part(doc.Args)
	for _, p := range doc.Params {
		part([]byte(p))
	}
	return Key(h.Sum(nil))
}
