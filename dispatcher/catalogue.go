package dispatcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// catalogue is what a host's agent offers. Hosts that offer the same share one, so that
// nobody may change it.
type catalogue struct {
	docs  []harp.ProcedureDoc // sorted by name
	names []string            // of each; nil where nothing was said
	keys  []schema.Key        // of each
}

// findProcedure returns where the procedure of that name is, or would be.
func (c *catalogue) findProcedure(name string) (at int, found bool) {
	return slices.BinarySearchFunc(c.docs, name, func(d harp.ProcedureDoc, name string) int { return strings.Compare(d.Name, name) })
}

func byName(a, b harp.ProcedureDoc) int { return strings.Compare(a.Name, b.Name) }

// digest tells catalogues apart.
type digest [sha256.Size]byte

// catalogues are those that hosts have, each once. A fleet has thousands of hosts
// and a handful of catalogues.
type catalogues struct {
	schemas schema.Cache  // made when a call is first checked by them
	long    chan struct{} // 1 slot: of the checks that take long one goes on at a time

	mu    sync.Mutex // guards what follows
	known map[digest]weak.Pointer[catalogue]
}

func newCatalogues() *catalogues {
	return &catalogues{known: map[digest]weak.Pointer[catalogue]{}, long: make(chan struct{}, 1)}
}

// catalogueOf returns the catalogue of these procedures. Nobody may change them from now on.
func (cs *catalogues) catalogueOf(docs []harp.ProcedureDoc) *catalogue {
	if !slices.IsSortedFunc(docs, byName) {
		docs = slices.Clone(docs)
		slices.SortStableFunc(docs, byName)
	}
	key := digestOf(docs)
	if c := cs.get(key); c != nil {
		return c
	}
	c := &catalogue{docs: docs, names: make([]string, len(docs)), keys: make([]schema.Key, len(docs))}
	for i, doc := range docs {
		c.names[i], c.keys[i] = doc.Name, schema.KeyOf(doc)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if had := cs.known[key].Value(); had != nil {
		return had
	}
	cs.known[key] = weak.Make(c)
	runtime.AddCleanup(c, cs.forget, key)
	return c
}

// checkCall looks whether a catalogue has the procedure and the arguments fit. An empty one is
// of a host that is online before it has said what it offers. Errors: harp.ErrNotFound,
// *harp.FieldError, context.Cause.
func (cs *catalogues) checkCall(ctx context.Context, c *catalogue, procedure string, args harp.Value) (harp.ProcedureDoc, error) {
	if len(c.docs) == 0 {
		return harp.ProcedureDoc{Name: procedure}, nil
	}
	at, found := c.findProcedure(procedure)
	if !found {
		return harp.ProcedureDoc{}, failures.NotFound("procedure", procedure)
	}
	return c.docs[at], cs.checkArgs(ctx, c, at, args)
}

// checkArgs looks whether arguments fit one of a catalogue's procedures. A schema that cannot be
// read checks nothing; the agent checks again. A check that takes long goes on for as long as its caller waits, and
// in turns with others: all of them together keep one processor busy at most. Errors: *harp.FieldError, context.Cause.
func (cs *catalogues) checkArgs(ctx context.Context, c *catalogue, at int, args harp.Value) error {
	known, err := cs.schemas.Get(c.keys[at], c.docs[at])
	if err != nil || known.FitTypes(args) {
		return nil //nolint:nilerr // said above
	}
	hasTurn := false
	endTurn := func() {
		if hasTurn {
			<-cs.long
			hasTurn = false
		}
	}
	defer endTurn()
	return known.CheckPaced(args, func() error {
		endTurn()
		select {
		case cs.long <- struct{}{}:
			hasTurn = true
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// secretArgs returns which arguments of one of a catalogue's procedures are not to be shown:
// all, if its schema cannot be read.
func (cs *catalogues) secretArgs(c *catalogue, at int, args harp.Value) []string {
	if !bytes.Contains(c.docs[at].Args, []byte(`"writeOnly"`)) {
		return nil
	}
	known, err := cs.schemas.Get(c.keys[at], c.docs[at])
	if err != nil {
		return schema.EveryArg()
	}
	return known.SecretArgs(args)
}

func (cs *catalogues) get(key digest) *catalogue {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.known[key].Value()
}

// forget forgets a catalogue that no host has, unless one came to have it since.
func (cs *catalogues) forget(key digest) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.known[key].Value() == nil {
		delete(cs.known, key)
	}
}

// digestOf is of all that there is in docs, each part behind its length.
func digestOf(docs []harp.ProcedureDoc) digest {
	b := make([]byte, 0, 4096)
	for i := range docs {
		p := &docs[i]
		b = appendPart(b, p.Name, p.Summary, p.Doc)
		b = appendPart(b, p.Args, p.Record, p.Result)
		b = appendPart(appendNumber(b, len(p.Params)), p.Params...)
		b = appendPart(appendNumber(b, len(p.Traits)), p.Traits...)
		b = appendNumber(appendNumber(b, p.SilenceTimeout), p.MaxExecTime)
		b = appendFlag(appendFlag(b, p.Streams), p.Idempotent)
	}
	return sha256.Sum256(b)
}

func appendNumber[T ~int | ~int64](b []byte, n T) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

func appendPart[T ~string | ~[]byte](b []byte, parts ...T) []byte {
	for _, p := range parts {
		b = append(appendNumber(b, len(p)), p...)
	}
	return b
}

func appendFlag(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}

// expectProcedures receives what the agent offers.
func (s *session) expectProcedures(ctx context.Context) (docs []harp.ProcedureDoc, err error) {
	for {
		var page wire.Procedures
		if err := s.expectFrame(ctx, wire.TypeProcedures, &page); err != nil {
			return nil, err
		}
		docs = append(docs, page.Procedures...)
		if page.Last {
			return docs, nil
		}
	}
}

// handleProcedures takes a new list, of which f is the first page.
func (s *session) handleProcedures(ctx context.Context, f transport.Frame) error {
	docs, err := s.receiveProcedures(ctx, f)
	defer s.endPages()
	if err != nil {
		return err
	}
	return s.recordNews(ctx, s.host.storedRow().Facts, docs)
}

// receiveProcedures receives the rest of a list, which must be there soon.
func (s *session) receiveProcedures(ctx context.Context, f transport.Frame) (docs []harp.ProcedureDoc, err error) {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	for {
		var page wire.Procedures
		if err := s.decodeExpected(ctx, f, wire.TypeProcedures, &page); err != nil {
			return nil, err
		}
		if docs = append(docs, page.Procedures...); page.Last {
			return docs, nil
		}
		if f, err = s.control.Receive(ctx); err != nil {
			return nil, err
		}
	}
}
