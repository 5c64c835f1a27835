// Package agent runs procedures on a host.
//
// An [Agent] offers Go functions as procedures, connects to a dispatcher and runs
// them when it is asked to:
//
//	var Restart = harp.NewProc[RestartArgs, RestartResult]("service.restart", "Restart a service")
//
//	a := agent.New(agent.Config{Name: "web01", TLS: tlsConfig})
//	agent.Handle(a, Restart, func(ctx context.Context, in RestartArgs) (RestartResult, error) {
//		...
//	})
//	err := a.Connect(ctx, "harp.example:7440")
//
// It may also wait to be dialled, with [Agent.Serve], by its dispatcher and by
// callers that do without one.
//
// The agent keeps a journal of what it starts, in Config.Dir: so a dispatcher that
// was away, or asks again, learns what became of a call, and nothing is started twice.
// What runs goes on while the dispatcher is away.
//
// A procedure's context ends when its job is cancelled or a limit is exceeded;
// context.Cause tells which: harp.ErrCancelled or a *harp.TimeoutError. A
// procedure that does not listen to it keeps its job open: a job has ended only
// when nothing of it runs any more.
package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/logcount"
	"github.com/harpcaller/harp/transport"
)

// Config says who an Agent is and how it behaves. Only Name and TLS have to be
// set.
type Config struct {
	// Name is the host's name. It must be the one in the certificate.
	Name string

	// Dir is where the agent keeps its own files, which is its journal: what it
	// started, how that ended, and the records nobody has taken yet. It is made if
	// it is not there. One process at a time may use it. What is in it must be this
	// process's user's own, and nobody else may be able to change it or the way there.
	Dir string

	// Journal is where the journal is kept, instead of Dir. Without either it is in
	// memory only: what ran when the process ends is lost, and the dispatcher says
	// so.
	Journal journal.FS

	// TLS holds the agent's certificate and the CA it trusts. It may be nil on
	// an in-memory network.
	TLS *tls.Config

	// Labels are what the host says of itself, at most 16.
	Labels map[string]string

	// Facts returns what is known of the host, each time a session begins; it
	// has 10 s. A session begins without if it takes longer, and Connect and Serve wait for it when
	// they end. Default: [DefaultFacts].
	Facts func(context.Context) (map[string]any, error)

	// Use are put around each procedure that is a Go function, the first outermost: to look at
	// what is called and returned, to refuse by returning an error, which is the job's failure
	// as one of the function, to turn panics into errors, or to hand on another ctx. An error
	// keeps the function from running, but the call counts as started. Commands of files, and
	// exec, are not run through them: what may run these is in Exec and in their files.
	Use []func(Handler) Handler

	// Exec offers the procedure exec, which runs any command that its policy allows.
	// nil: there is no such procedure.
	Exec *ExecPolicy

	// Logger gets what operators want to know. Default: slog.Default().
	Logger *slog.Logger

	// Dial opens connections to the dispatcher. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Limits bound what the agent takes on.
	Limits Limits
}

// Agent offers procedures and runs them. It is safe for concurrent use; Connect and
// Serve may run side by side. An agent has one dispatcher at a time: a session that
// a dispatcher opens closes the one before, and one of a dispatcher with another store
// is refused.
type Agent struct {
	cfg       Config
	bare      bool  // would dial TCP without TLS
	wrong     error // what of the configuration New has found wrong
	log       *slog.Logger
	repeated  *logcount.Logger // for what peers can do again and again; set before anything begins
	instance  string           // one per process
	catalogue catalogue
	problems  problems
	attempts  attempts
	journal   *journalHandle
	budget    *budget
	putOff    postponements
	memory    memory
	ends      results           // of that, what waits for the journal, and what functions will return
	handing   chan struct{}     // as many slots as long results are handed to the journal at a time
	offering  chan struct{}     // and long records
	finding   chan struct{}     // 1 slot: Config.Facts is called
	peers     *transport.Budget // what dispatchers and callers can make it hold
	sessions  sessionCounts
	commands  sync.WaitGroup         // of commands that go on without the agent, and of what is done about them
	up        atomic.Pointer[string] // the store of the dispatcher that has a session; nil: none has
	connects  atomic.Bool            // a Connect is under way

	life   sync.Mutex         // guards what follows; held while the journal is opened and closed
	scopes int                // that use it
	here   context.Context    // until the last of them lets go of what goes on without the agent
	letGo  context.CancelFunc // does so

	dirNumber int64 // of Config.Dir, see journalInfo; set before anything begins

	mu      sync.Mutex                // guards what follows; never held while blocked
	current *session                  // the dispatcher's, since its WELCOME
	epochs  []storeEpoch              // the highest seen, of the stores seen last
	longest time.Duration             // pause before reconnecting
	unknown map[journal.Key]stranger  // kept for a dispatcher other than the current one
	strange map[journal.Key]time.Time // since when another dispatcher is known not to know them
}

// New returns an agent that offers nothing yet: see [Handle]. Whether the
// configuration can be is said by Connect and Serve.
func New(cfg Config) *Agent {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Facts == nil {
		cfg.Facts = DefaultFacts
	}
	cfg.Labels, cfg.Use = maps.Clone(cfg.Labels), slices.Clone(cfg.Use)
	bare := cfg.TLS == nil && cfg.Dial == nil
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	log := cfg.Logger.With("host", cfg.Name)
	a := &Agent{
		cfg:       cfg,
		bare:      bare,
		log:       log,
		repeated:  logcount.New(log),
		instance:  harp.NewID(),
		catalogue: catalogue{procedures: map[string]*procedure{}},
		journal:   newJournalHandle(&cfg, log),
		unknown:   map[journal.Key]stranger{},
		strange:   map[journal.Key]time.Time{},
		putOff:    newPostponements(),
		longest:   defaultLongest,
		peers:     transport.NewBudget(),
	}
	a.memory.most, a.ends.most, a.handing = maxHeldBytes, maxResultBytes, make(chan struct{}, maxHanding)
	a.offering, a.finding = make(chan struct{}, maxHanding), make(chan struct{}, 1)
	a.attempts = newAttempts(cfg.Limits.MaxAttempts, a.journal.owes)
	a.budget = newBudget(a.journal.opts.MaxAgent, a.journal.opts.MaxJob, cfg.Limits.MaxAttempts)
	if cfg.Exec != nil {
		var p *procedure
		if p, a.wrong = execProcedure(*cfg.Exec); a.wrong == nil {
			a.catalogue.add(p)
		}
	}
	return a
}

// Procedures returns what the agent offers, by name.
func (a *Agent) Procedures() []harp.ProcedureDoc { return a.catalogue.docs() }

// begin opens the journal for one more Connect or Serve, which has to end what it
// returns. Errors: *DirInUseError, *CopiedDirError, *harp.FieldError for a directory that others could
// change, and those of the journal and the file system.
func (a *Agent) begin(ctx context.Context) (*scope, error) {
	a.life.Lock()
	defer a.life.Unlock()
	if a.cfg.Dir != "" && a.scopes == 0 {
		if err := prepareDir(a.cfg.Dir); err != nil {
			return nil, err
		}
	}
	if err := a.journal.open(ctx); err != nil {
		return nil, err
	}
	if a.scopes == 0 {
		left, err := a.findLeft()
		if err != nil {
			a.journal.close()
			return nil, err
		}
		a.repeated = logcount.New(a.log)
		a.here, a.letGo = context.WithCancel(context.Background())
		a.adopt(left)
	}
	a.scopes++
	for _, at := range a.attempts.held() {
		at.rehand()
	}
	return &scope{}, nil
}

// findLeft returns the supervisors that the last agent has left. The error is a *CopiedDirError if
// they, or anything else that had begun, are another directory's.
func (a *Agent) findLeft() ([]supervisor.Key, error) {
	left, err := supervisor.List(a.supervision())
	if err != nil {
		return nil, fmt.Errorf("agent: supervisors of the last agent: %w", err)
	}
	if a.cfg.Dir == "" {
		return left, nil
	}
	if a.dirNumber, err = numberOf(a.cfg.Dir); err != nil {
		return nil, fmt.Errorf("agent: directory: %w", err)
	}
	return left, a.checkCopied(left)
}

// end ends what a scope has begun, which has its grace to end by itself, and waits for it. The
// last one lets go of what goes on without the agent, and closes the journal.
func (a *Agent) end(st *scope) {
	own := a.attempts.pick(func(at *attempt) bool { return at.scope == st })
	st.drain(own, a.cfg.Limits.Grace, nil)
	st.grace.Stop()
	st.over.fire()
	for _, at := range own {
		at.interrupt(harp.ErrClosed)
	}
	st.work.Wait()
	a.life.Lock()
	defer a.life.Unlock()
	if a.scopes--; a.scopes == 0 {
		a.detach()
		a.repeated.Close()
	}
	a.journal.close()
}

// check reports what of the configuration cannot be. The error is a
// *harp.FieldError.
func (a *Agent) check() error {
	if err := transport.CheckName(a.cfg.Name); err != nil {
		return &harp.FieldError{Field: "name", Message: err.Error()}
	}
	if a.wrong != nil {
		return a.wrong
	}
	if slices.ContainsFunc(a.cfg.Use, func(f func(Handler) Handler) bool { return f == nil }) {
		return &harp.FieldError{Field: "use", Message: "a function is nil"}
	}
	if err := harp.CheckLabels(a.cfg.Labels); err != nil {
		return err
	}
	if err := a.cfg.Limits.check(); err != nil {
		return err
	}
	return checkCertificate(a.cfg.TLS, a.cfg.Name)
}

// checkCertificate compares the name with that in the certificate, which is what
// everybody else will go by.
func checkCertificate(tc *tls.Config, name string) error {
	if tc == nil || len(tc.Certificates) == 0 || len(tc.Certificates[0].Certificate) == 0 {
		return nil
	}
	cert, err := x509.ParseCertificate(tc.Certificates[0].Certificate[0])
	if err != nil {
		return &harp.FieldError{Field: "tls", Message: err.Error()}
	}
	id, err := transport.IdentityOf(cert)
	switch {
	case err != nil:
		return &harp.FieldError{Field: "tls", Message: err.Error()}
	case id.Role != transport.RoleAgent:
		return &harp.FieldError{Field: "tls", Message: "the certificate is not an agent's: " + id.String()}
	case id.Name != name:
		return &harp.FieldError{Field: "name", Message: fmt.Sprintf("is %q, but the certificate is for %q", name, id.Name)}
	}
	return nil
}
