package journal

import (
	"sync"
	"testing"
	"testing/synctest"
)

// gate is a Memory that counts syncs of files and may hold them back, or fail one.
type gate struct {
	*Memory
	mu    sync.Mutex
	syncs int
	hold  chan struct{} // nil: they go through
	err   error         // of the next
	while func()        // a sync lasts; nil: nothing happens
}

type gatedFile struct {
	File
	g *gate
}

func (g *gate) Open(name string) (File, error) {
	f, err := g.Memory.Open(name)
	return gatedFile{f, g}, err
}

func (g *gate) Create(name string) (File, error) {
	f, err := g.Memory.Create(name)
	return gatedFile{f, g}, err
}

func (f gatedFile) Sync() error {
	f.g.mu.Lock()
	f.g.syncs++
	hold, err, while := f.g.hold, f.g.err, f.g.while
	f.g.err = nil
	f.g.mu.Unlock()
	if while != nil {
		while()
	}
	if hold != nil {
		<-hold
	}
	if err != nil {
		return err
	}
	return f.File.Sync()
}

// count returns how many syncs there were since it was asked last.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.syncs
	g.syncs = 0
	return n
}

// shut holds syncs back until open is called; the first answers err.
func (g *gate) shut(err error) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	g.hold, g.err = c, err
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.hold = nil
		close(c)
	}
}

// inBubble runs a test on a journal in a gate, in a bubble of its own time.
func inBubble(t *testing.T, opts Options, test func(t *testing.T, g *gate, j *Journal)) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Memory: NewMemory()}
		j, err := Open(g, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		g.count()
		test(t, g, j)
	})
}
