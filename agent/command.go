package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/command"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/schema"
)

// Load offers the procedures that the YAML files of a directory declare (those whose
// names end in .yaml or .yml): commands, see docs/procedures.md. Called again with the
// same directory it replaces what was loaded from it before; dispatchers are told, and
// what runs goes on as it was. If a file is bad nothing else changes, and dispatchers are told of it
// until Load succeeds, as of a problem of the host.
//
// Errors: harp.ErrInvalid, several joined, each naming file, line and field; os's for
// what cannot be read; harp.ErrConflict for a procedure that is there already.
func (a *Agent) Load(dir string) error {
	procedures, err := load(dir, proc.EnableController, a.cfg.Limits.MaxResult)
	if err == nil {
		err = a.catalogue.replace(dir, procedures)
	}
	from := problemSource{code: harp.ProblemProcedures, of: dir}
	if err != nil {
		a.report(from, errorTexts(err)...)
		return err
	}
	a.report(from)
	a.sendProblems()
	return nil
}

// CheckDir reports whether Load of an agent with the default Limits would take the
// directory as it is now, and also reports scripts that are missing or not executable, which
// Load leaves to the calls. Of limits that are kept by cgroup v2 it looks whether the machine
// has the controllers; whether an agent may use them depends on how that is started, and
// Load says it. Errors: as Load.
func CheckDir(dir string) error {
	commands, err := command.Check(dir, proc.HasController, harp.MaxResult)
	if err == nil {
		_, err = proceduresOf(commands)
	}
	return err
}

func load(dir string, able func(controller string) error, maxResult int) ([]*procedure, error) {
	commands, err := command.Load(dir, able, maxResult)
	if err != nil {
		return nil, err
	}
	return proceduresOf(commands)
}

// proceduresOf are the procedures that run commands.
func proceduresOf(commands []*command.Command) ([]*procedure, error) {
	procedures := make([]*procedure, len(commands))
	for i, c := range commands {
		var err error
		if procedures[i], err = commandProcedure(c); err != nil {
			return nil, err
		}
	}
	return procedures, nil
}

// commandProcedure is the procedure that runs a command.
func commandProcedure(c *command.Command) (*procedure, error) {
	p := &procedure{doc: c.Doc, most: c.Concurrency}
	if err := p.check(); err != nil {
		return nil, err
	}
	var err error
	if p.args, err = schema.Compile(p.doc); err != nil {
		return nil, err
	}
	p.bind = func(args harp.Value, info *CallInfo) (task, error) {
		spec, err := c.Prepare(command.Call{
			Job: info.JobID, Attempt: int64(info.Attempt), Host: info.Host, Args: args, DryRun: info.DryRun,
			SilenceTimeout: info.SilenceTimeout, MaxExecTime: info.MaxExecTime, Schedule: info.Schedule, FireTime: info.FireTime,
		})
		if err != nil {
			return task{}, err
		}
		r := newCommandRun(context.Background(), c.EndsReboot && !info.DryRun)
		r.spec = spec
		return task{begin: r.begin, run: r.run, cmd: r}, nil
	}
	return p, nil
}

// ExecPolicy is what callers of the procedure exec may run. The zero policy allows any
// program, anywhere, as the agent's own user.
type ExecPolicy struct {
	User, Group    string        // as whom; default: as the agent
	Commands       []string      // programs, as they must be named in argv[0]; nil: any
	Dirs           []string      // where it may be run, and below; nil: anywhere
	Env            []string      // variables that a call may set
	PassEnv        []string      // variables of the agent's own
	SilenceTimeout time.Duration // as of any procedure; 0: none of its own
	MaxExecTime    time.Duration
	Grace          time.Duration // from TERM to KILL; default 10 s
	PrivateTmp     bool          // each has an empty /tmp of its own, which needs an agent that is root
}

// execProcedure makes the procedure exec. Errors: *harp.FieldError.
func execProcedure(policy ExecPolicy) (*procedure, error) {
	c, err := command.Exec(command.ExecPolicy(policy))
	if err != nil {
		return nil, err
	}
	return commandProcedure(c)
}

// supervises reports whether commands outlive the agent.
func (a *Agent) supervises() bool { return a.cfg.Dir != "" && supervisor.Available() }

// supervision is where what outlives the agent is kept, also what another program of the
// agent's has begun.
func (a *Agent) supervision() supervisor.Options {
	if a.cfg.Dir == "" {
		return supervisor.Options{}
	}
	return supervisionIn(a.cfg.Dir)
}

// supervisionIn is where the supervisors of the agent with a directory are.
func supervisionIn(dir string) supervisor.Options {
	return supervisor.Options{Dir: filepath.Join(dir, "run")}
}

// beginTime is how long the start of a command may take: until its program runs.
const beginTime = 30 * time.Second
