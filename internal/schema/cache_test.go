package schema

import (
	"encoding/binary"
	"testing"
)

// TestCacheIsBounded checks that agents which offer ever other schemas do not fill the memory.
func TestCacheIsBounded(t *testing.T) {
	var c Cache
	for i := range uint64(500) {
		key := Key(binary.BigEndian.AppendUint64(make([]byte, 24), i))
		c.addCompiled(key, compiled{args: &Args{weight: 1 << 20}})
		if _, ok := c.lookUp(key); !ok {
			t.Fatal("what was kept last is gone")
		}
	}
	weight := 0
	for _, one := range c.kept {
		weight += one.weight()
	}
	if weight != c.weight || weight > MaxCached || weight < MaxCached/2 {
		t.Errorf("weighs %d, thinks it is %d", weight, c.weight)
	}
}
