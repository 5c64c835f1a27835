package agent

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/internal/wire"
)

// A ProcOption declares something about a procedure.
type ProcOption func(*procedure)

// Idempotent declares that running the procedure again does no harm, so that it may
// be run again when what became of it cannot be known.
func Idempotent() ProcOption { return func(p *procedure) { p.doc.Idempotent = true } }

// Exclusive declares that the procedure runs once at a time on this host: a call that
// comes meanwhile waits at the dispatcher.
func Exclusive() ProcOption {
	return func(p *procedure) {
		p.limitTo("Exclusive", 1)
		p.doc.Traits = append(p.doc.Traits, harp.TraitExclusive)
	}
}

// Concurrency declares that the procedure runs at most n times at once on this host, as
// concurrency does in procedure files: a call that comes meanwhile waits at the dispatcher. n
// must be at least 1, and the procedure not Exclusive.
func Concurrency(n int) ProcOption {
	return func(p *procedure) { p.limitTo("Concurrency", n) }
}

// limitTo bounds how many of the procedure run at a time, once.
func (p *procedure) limitTo(option string, n int) {
	switch {
	case n < 1:
		p.broken("%s must be at least 1", option)
	case p.most > 0:
		p.broken("%s: how many run at a time is said already", option)
	}
	p.most = n
}

// Dangerous declares that who calls the procedure by hand is to be asked whether they
// mean it.
func Dangerous() ProcOption {
	return func(p *procedure) { p.doc.Traits = append(p.doc.Traits, harp.TraitDangerous) }
}

// DryRun declares that the procedure looks at CallInfo.DryRun, and then says what it
// would do and does nothing. Calls for a dry run of any other are refused.
func DryRun() ProcOption {
	return func(p *procedure) { p.doc.Traits = append(p.doc.Traits, harp.TraitDryRun) }
}

// ReadOnly declares that the procedure changes nothing on the host, as read_only does in procedure files: maintenance
// windows keep it back only if they say so. Nothing checks that it is so.
func ReadOnly() ProcOption {
	return func(p *procedure) { p.doc.Traits = append(p.doc.Traits, harp.TraitReadOnly) }
}

// OwnThread declares that fn binds its goroutine to its thread and leaves it so, or changes
// what belongs to the thread: it runs in a goroutine of its own, whose thread ends with it
// if it was left bound. The function of any other procedure may run in a goroutine that runs others
// afterwards.
func OwnThread() ProcOption { return func(p *procedure) { p.ownThread = true } }

// SilenceTimeout is the procedure's own longest silence between two records: the default
// of its calls, and what they can ask for at most. d must be more than zero. Without it a
// procedure that yields records has the dispatcher's default, and any other none.
func SilenceTimeout(d time.Duration) ProcOption {
	return func(p *procedure) { p.doc.SilenceTimeout = p.positive("SilenceTimeout", d) }
}

// MaxExecTime is the procedure's own longest run: the default of its calls, and
// what they can ask for at most. d must be more than zero.
func MaxExecTime(d time.Duration) ProcOption {
	return func(p *procedure) { p.doc.MaxExecTime = p.positive("MaxExecTime", d) }
}

func (p *procedure) positive(option string, d time.Duration) time.Duration {
	if d <= 0 {
		p.broken("%s must be more than zero", option)
	}
	return d
}

// Handle offers fn as the procedure p of agent a.
//
// The fields of A, named by their json tags, are the parameters, in their order for
// positional arguments; a jsonschema tag describes one in words, and nothing more: what
// the type does not say, such as bounds, fn checks itself. One whose json tag says
// omitempty may be left out. An A that is a map takes any names, a slice takes the
// positional arguments, an any takes arguments as they are, and another type is the
// one parameter called value. Arguments that do not fit are refused and fn is not
// called.
//
// An error that fn returns is the job's failure: its type is that of Errorf, or
// what a method Type() string of the error returns, or "error". A panic is a
// failure of type "panic". What fn returns after its context has ended is kept with
// the job, but the limit or cancel decides.
//
// Procedures should be there before Connect and Serve: dispatchers are told at the
// beginning of a session. Handle panics if p has no proper name, if there is such a
// procedure already, or if a type has no JSON Schema.
func Handle[A, R any](a *Agent, p harp.Proc[A, R], fn func(context.Context, A) (R, error), opts ...ProcOption) {
	a.catalogue.add(declare[A, R](p, fn == nil, opts, func(ctx context.Context, args A, _ func(any) error) (any, error) {
		return fn(ctx, args)
	}))
}

// HandleStream is Handle for a procedure that yields records. emit offers one; it
// waits while records that nobody has taken yet fill the window, and may be called
// from several goroutines. While the dispatcher is away records go to the journal;
// when that has its fill of the job they are dropped, and the next one says so. emit
// returns an error that is harp.ErrInvalid for a record
// that is too large or has no form on the wire (the procedure may go on), the cause
// of fn's context when that has ended, and harp.ErrClosed after fn has returned.
func HandleStream[A, M, R any](a *Agent, p harp.StreamProc[A, M, R], fn func(ctx context.Context, args A, emit func(M) error) (R, error), opts ...ProcOption) {
	proc := declare[A, R](p.Proc, fn == nil, opts, func(ctx context.Context, args A, emit func(any) error) (any, error) {
		return fn(ctx, args, func(m M) error { return emit(m) })
	})
	proc.doc.Streams = true
	proc.doc.Record = proc.schemaOf(reflect.TypeFor[M]())
	a.catalogue.add(proc)
}

// procedure is what a host offers under a name.
type procedure struct {
	doc      harp.ProcedureDoc
	args     *schema.Args
	dir      string      // it was loaded from; empty: from none
	most     int         // that run at a time; 0: any
	expected expectation // of its results
	// ownThread: no other function runs in its goroutine, before or after.
	ownThread bool
	bind      func(args harp.Value, info *CallInfo) (task, error)
}

// can reports whether the procedure declares a trait.
func (p *procedure) can(trait string) bool { return slices.Contains(p.doc.Traits, trait) }

// task is what one call of a procedure does.
type task struct {
	// begin prepares it, calls commit, which journals the start, and starts it. The
	// refusal is commit's, or says why it was not started. nil: run starts it.
	begin func(at *attempt, commit func() refusal) refusal
	run   func(at *attempt) (any, error)
	cmd   *commandRun // what runs is a command; nil: it is a function
	// ownThread: no other function runs in its goroutine, before or after.
	ownThread bool
}

// survives reports whether the task goes on without the agent.
func (t task) survives() bool { return t.cmd != nil && t.cmd.survives }

// keepsElsewhere is how many bytes of records it may keep outside the journal.
func (t task) keepsElsewhere() int64 {
	if t.cmd == nil {
		return 0
	}
	return t.cmd.spec.MaxSpool
}

// declare describes a procedure. It panics where the program is wrong.
func declare[A, R any](p harp.Proc[A, R], noFunc bool, opts []ProcOption, fn func(context.Context, A, func(any) error) (any, error)) *procedure {
	summary, doc, _ := strings.Cut(strings.TrimSpace(p.Doc), "\n")
	proc := &procedure{doc: harp.ProcedureDoc{Name: p.Name, Summary: summary, Doc: strings.TrimSpace(doc)}}
	if err := proc.check(); err != nil {
		proc.broken("%v", err)
	}
	if noFunc {
		proc.broken("the function is nil")
	}
	sig, err := schema.SignatureOf(reflect.TypeFor[A]())
	if err != nil {
		proc.broken("arguments: %v", err)
	}
	proc.doc.Params, proc.doc.Args = sig.Params, sig.Args
	proc.doc.Result = proc.schemaOf(reflect.TypeFor[R]())
	if proc.args, err = schema.Compile(proc.doc); err != nil {
		proc.broken("%v", err)
	}
	proc.bind = func(v harp.Value, _ *CallInfo) (task, error) {
		args, err := decode[A](sig.Form, v)
		run := func(at *attempt) (any, error) {
			return at.agent.handle(func(ctx context.Context, _ harp.Value) (any, error) { return fn(ctx, args, at.emit) })(at.ctx, v)
		}
		return task{run: run, ownThread: proc.ownThread}, err
	}
	for _, opt := range opts {
		opt(proc)
	}
	return proc
}

// decode makes the value that the function takes.
func decode[A any](form schema.Form, v harp.Value) (A, error) {
	if form == schema.FormSingle {
		var one struct {
			Value A `json:"value"`
		}
		err := v.Decode(&one)
		return one.Value, err
	}
	var args A
	err := v.Decode(&args)
	return args, err
}

func (p *procedure) schemaOf(t reflect.Type) []byte {
	s, err := schema.Of(t)
	if err != nil {
		p.broken("%v", err)
	}
	return s
}

// check reports what of the description cannot be told. The error is a
// *harp.FieldError.
func (p *procedure) check() error {
	n := p.doc.Name
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if n == "" || len(n) > harp.MaxProcedureName || !utf8.ValidString(n) || strings.ContainsFunc(n, odd) {
		return &harp.FieldError{Field: "name", Message: fmt.Sprintf("must be 1 to %d bytes of UTF-8 without spaces", harp.MaxProcedureName)}
	}
	if n := len(wire.Encode(p.doc)); n > maxPage {
		return &harp.FieldError{Field: "description", Message: fmt.Sprintf("is %d bytes, at most %d", n, maxPage)}
	}
	return nil
}

// broken ends the program that declares what cannot be.
func (p *procedure) broken(format string, a ...any) {
	panic(fmt.Sprintf("agent: procedure %q: ", p.doc.Name) + fmt.Sprintf(format, a...))
}

// catalogue is what an agent offers.
type catalogue struct {
	mu         sync.Mutex // guards what follows
	version    int        // raised with each change
	procedures map[string]*procedure
}

// replace puts procedures in the place of those that were loaded from the same
// directory. The error is harp.ErrConflict: another one has the name.
func (c *catalogue) replace(dir string, procedures []*procedure) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(c.procedures)
	maps.DeleteFunc(next, func(_ string, p *procedure) bool { return p.dir == dir })
	for _, p := range procedures {
		if next[p.doc.Name] != nil {
			return fmt.Errorf("%w: procedure %s already exists and is not from %s", harp.ErrConflict, p.doc.Name, dir)
		}
		p.dir = dir
		next[p.doc.Name] = p
	}
	c.procedures = next
	c.version++
	return nil
}

// current is the version of the catalogue.
func (c *catalogue) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// add panics if the name is taken or the description too long to be told.
func (c *catalogue) add(p *procedure) {
	if err := p.check(); err != nil {
		p.broken("%v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.procedures[p.doc.Name] != nil {
		p.broken("already exists")
	}
	c.procedures[p.doc.Name] = p
	c.version++
}

func (c *catalogue) find(name string) *procedure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.procedures[name]
}

// all returns the procedures by name.
func (c *catalogue) all() []*procedure {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Collect(maps.Values(c.procedures))
	slices.SortFunc(list, func(p, q *procedure) int { return strings.Compare(p.doc.Name, q.doc.Name) })
	return list
}

func (c *catalogue) docs() []harp.ProcedureDoc {
	var docs []harp.ProcedureDoc
	for _, p := range c.all() {
		d := p.doc
		d.Params, d.Traits = slices.Clone(d.Params), slices.Clone(d.Traits)
		d.Args, d.Record, d.Result = slices.Clone(d.Args), slices.Clone(d.Record), slices.Clone(d.Result)
		docs = append(docs, d)
	}
	return docs
}
