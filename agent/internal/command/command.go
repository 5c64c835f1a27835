// Package command makes procedures of commands that are declared in YAML files.
//
//	service.restart:
//	  summary: Restart a systemd unit and return its pid
//	  params:
//	    service: {type: string, required: true, pattern: '^[a-z0-9@._-]+$', doc: systemd unit name}
//	    mode:    {enum: [restart, reload], default: restart}
//	  command: [./svc-restart, "{{.mode}}", "{{.service}}"]
//	  result: {from: stdout-last-json}
//
// An argument of a call fills one element of the argv, or a part of one, as it is: no shell
// sees it. What a file may hold is described in docs/procedures.md.
//
// Placeholders are {{.name}}, {{.name...}} for a list, and {{file .name}} for the path of
// a file that holds the argument and that only the command's user can read. {{"{{"}} stands
// for two braces. The element of a command that has a list in it, as
// --exclude={{.names...}}, comes once for each element of the list. One that mentions an
// optional parameter without default for which there is no argument is left out. Elements
// in a list of their own, as [-C, "{{.dir}}"], are left out or repeated together. A
// variable is left out likewise; in stdin such a placeholder is empty.
//
// {{.fire_time}} is no parameter, unless one is called so, but the time of a schedule that the
// call is the run of, as 2027-03-28T01:00:00Z; of any other call there is no such argument.
package command

import (
	"encoding/json"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// TraitRole is what the trait begins with that names a role of those who may call.
const TraitRole = "role:"

// Command is a procedure that runs a command. It is safe for concurrent use.
type Command struct {
	Doc         harp.ProcedureDoc // its schema, limits and traits, as of a Go procedure
	Concurrency int               // how many of it may run on this host at a time; 0: any
	EndsReboot  bool              // its end is that the machine boots anew
	DryRun      bool              // it has a command for dry runs

	params  map[string]*parameter
	argv    []element
	dryRun  []element
	scripts []script // that argv executes
	stdin   template

	dryScripts []script // that dryRun executes
	dryJSON    bool     // the result of dryRun is the last line of its output, as JSON; else its exit code

	env     []setting
	passEnv []string
	process proc.Spec // without Argv and Env
	grace   time.Duration
	result  supervisor.Result
	success []int
	records supervisor.Splitting
	leave   bool
	private bool // it has a directory of its own
	tmp     bool // it has a /tmp of its own
	needs   []need
	exec    *ExecPolicy // of the ad-hoc procedure, which has none of the templates
}

// need is what a field of a procedure needs this machine for.
type need struct{ field, controller string }

// element is an element of an argv, or several that are left out and repeated together.
type element struct{ words []template }

// setting is a variable of the environment.
type setting struct {
	name  string
	value template
}

// Call is a call of a command, with what was granted.
type Call struct {
	Job            string
	Attempt        int64
	Host           string
	Args           harp.Value // bound: named, and they fit the schema
	DryRun         bool
	SilenceTimeout time.Duration // 0: none, as of MaxExecTime
	MaxRecord      int
	MaxSpool       int64

	MaxExecTime time.Duration

	Schedule string    // that caused it; empty: none did
	FireTime time.Time // the nominal time that it is the run of; zero: of none
}

// Where a result may be from.
const (
	fromExitCode = "exit-code"
	fromStdout   = "stdout"
	fromLastJSON = "stdout-last-json"
	fromFile     = "file"
)

var sources = []string{fromExitCode, fromStdout, fromLastJSON, fromFile}

func resultSchema(from string) json.RawMessage {
	switch from {
	case fromExitCode:
		return json.RawMessage(`{"type":"integer"}`)
	case fromLastJSON:
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(`{"type":"string"}`)
}
