package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// ExecName is the name of the ad-hoc procedure.
const ExecName = "exec"

// ExecPolicy is what callers of the ad-hoc procedure may run.
type ExecPolicy struct {
	User, Group    string        // as whom; default: as the agent
	Commands       []string      // programs, as they must be named in argv[0]; nil: any
	Dirs           []string      // where it may be run, and below; nil: anywhere
	Env            []string      // variables that a call may set
	PassEnv        []string      // variables of the agent's own
	SilenceTimeout time.Duration // as of any procedure; 0: none of its own
	MaxExecTime    time.Duration
	Grace          time.Duration // default: 10 s
	PrivateTmp     bool
}

// Exec makes the ad-hoc procedure, which runs the argv that a call has. Errors:
// *harp.FieldError for a policy that cannot be, as "exec.env".
func Exec(p ExecPolicy) (*Command, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	args, err := json.Marshal(p.schema())
	if err != nil {
		return nil, err
	}
	c := &Command{
		Doc: harp.ProcedureDoc{
			Name: ExecName, Summary: "Run a command",
			Doc:    "Runs argv as it is, without a shell. The result is its exit code.",
			Params: []string{"argv", "stdin", "cwd", "env"}, Args: args,
			Record: json.RawMessage(`{"type":"string"}`), Result: resultSchema(fromExitCode),
			SilenceTimeout: p.SilenceTimeout, MaxExecTime: p.MaxExecTime, Streams: true,
			Traits: []string{harp.TraitCommand, harp.TraitDangerous},
		},
		passEnv: slices.Clone(p.PassEnv),
		process: proc.Spec{User: p.User, Group: p.Group},
		grace:   p.Grace,
		result:  supervisor.Result{From: fromExitCode, Max: defaultResult},
		records: supervisor.SplitLines,
		exec:    &p,
		tmp:     p.PrivateTmp,
	}
	if c.grace == 0 {
		c.grace = defaultGrace
	}
	p.Commands, p.Dirs, p.Env = slices.Clone(p.Commands), slices.Clone(p.Dirs), slices.Clone(p.Env)
	return c, nil
}

func (p *ExecPolicy) check() error {
	const empty = "must not be empty: left out it allows any"
	if p.Commands != nil && len(p.Commands) == 0 {
		return &harp.FieldError{Field: "exec.commands", Message: empty}
	}
	if p.Dirs != nil && len(p.Dirs) == 0 {
		return &harp.FieldError{Field: "exec.dirs", Message: empty}
	}
	for _, name := range slices.Concat(p.Env, p.PassEnv) {
		if !variable.MatchString(name) || strings.HasPrefix(name, ownPrefix) {
			return &harp.FieldError{Field: "exec.env", Message: fmt.Sprintf("%q is not the name of a variable other than harp's own", clip(name))}
		}
	}
	for _, name := range p.Env {
		if decides(name) {
			return &harp.FieldError{Field: "exec.env", Message: name + " decides which code runs, and callers do not choose that"}
		}
	}
	for _, dir := range p.Dirs {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return &harp.FieldError{Field: "exec.dirs", Message: "must be absolute paths without . and .., not ending with /"}
		}
	}
	if p.PrivateTmp {
		if err := proc.ProbePrivateTmp(); err != nil {
			return &harp.FieldError{Field: "exec.private_tmp", Message: "is not available here: " + err.Error()}
		}
	}
	if p.SilenceTimeout < 0 || p.MaxExecTime < 0 || p.Grace < 0 {
		return &harp.FieldError{Field: "exec", Message: "durations must not be negative"}
	}
	return nil
}

func (p *ExecPolicy) schema() *jsonschema.Schema {
	word := func(doc string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: doc, Pattern: patternPlain, MaxLength: new(maxElement)}
	}
	never := &jsonschema.Schema{Not: &jsonschema.Schema{}}
	env := &jsonschema.Schema{Type: "object", Description: "variables", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: never}
	for _, name := range p.Env {
		env.Properties[name] = word("")
	}
	dir := word("where it runs: an absolute path; default /")
	dir.Pattern, dir.MaxLength = `^(?:/`+patternSegment+`?)+$`, new(maxPath)
	return &jsonschema.Schema{
		Type:     "object",
		Required: []string{"argv"},
		Properties: map[string]*jsonschema.Schema{
			"argv":  {Type: "array", Description: "the program and its arguments", Items: word(""), MinItems: new(1)},
			"stdin": {Type: "string", Description: "what it reads"},
			"cwd":   dir,
			"env":   env,
		},
		PropertyOrder:        []string{"argv", "stdin", "cwd", "env"},
		AdditionalProperties: never,
	}
}

// fill makes of the arguments what has to run. Errors: *harp.FieldError.
func (p *ExecPolicy) fill(spec *supervisor.Spec, values map[string]any) error {
	var err error
	if spec.Command.Argv, err = p.argv(values["argv"]); err != nil {
		return err
	}
	text := &parameter{kind: typeString}
	if stdin, ok := values["stdin"]; ok {
		read, err := text.text("args.stdin", stdin)
		if err != nil {
			return err
		}
		spec.Stdin = []byte(read)
	}
	if err := p.dir(spec, values["cwd"]); err != nil {
		return err
	}
	env, _ := values["env"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		field := "args.env." + name
		if !slices.Contains(p.Env, name) {
			return &harp.FieldError{Field: field, Message: "is not allowed"}
		}
		value, err := text.argument(field, env[name], false)
		if err != nil {
			return err
		}
		if size := len(name) + 1 + len(value); size > maxElement {
			return tooLong(field, size)
		}
		spec.Command.Env = append(spec.Command.Env, name+"="+value)
	}
	return nil
}

// argv checks the command: a program by an absolute path or by its name in the PATH,
// which is fixed.
func (p *ExecPolicy) argv(v any) ([]string, error) {
	list, _ := v.([]any)
	words := make([]string, len(list))
	word := &parameter{kind: typeString}
	for i, v := range list {
		field := fmt.Sprintf("args.argv[%d]", i)
		text, err := word.argument(field, v, i == 0)
		if err != nil {
			return nil, err
		}
		if len(text) > maxElement {
			return nil, tooLong(field, len(text))
		}
		words[i] = text
	}
	switch {
	case len(words) == 0 || words[0] == "":
		return nil, &harp.FieldError{Field: "args.argv", Message: "must begin with a program"}
	case strings.Contains(words[0], "/") && !filepath.IsAbs(words[0]):
		return nil, &harp.FieldError{Field: "args.argv[0]", Message: "must be an absolute path, or the name of a program"}
	case len(p.Commands) > 0 && !slices.Contains(p.Commands, words[0]):
		return nil, &harp.FieldError{Field: "args.argv[0]", Message: "is not allowed; allowed: " + strings.Join(p.Commands, ", ")}
	}
	return words, nil
}

// dir checks where the command runs.
func (p *ExecPolicy) dir(spec *supervisor.Spec, v any) error {
	if v == nil && len(p.Dirs) > 0 {
		v = p.Dirs[0]
	}
	if v == nil {
		return nil
	}
	dir, err := (&parameter{kind: typePath}).argument("args.cwd", v, true)
	if err != nil {
		return err
	}
	spec.Command.Dir = dir
	var last error
	for _, allowed := range p.Dirs {
		if last = checkUnder("args.cwd", allowed, dir); last == nil {
			return nil
		}
	}
	return last
}
