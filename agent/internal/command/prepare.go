package command

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/duration"
)

// Prepare makes of a call what has to run. A dry run's result is its exit code: what
// would happen is what it prints.
//
// Errors: *access.UntrustedError if others could change what would be executed; *harp.FieldError with the field, as "args.path": for what a schema cannot
// say, as of the bytes in an element of a command and of where symbolic links lead; and
// "dry_run" if the command has none; that of the system if files have run out.
func (c *Command) Prepare(call Call) (supervisor.Spec, error) {
	if call.DryRun && !c.DryRun {
		return supervisor.Spec{}, &harp.FieldError{Field: "dry_run", Message: "the procedure has no dry run"}
	}
	values, err := c.values(call)
	if err != nil {
		return supervisor.Spec{}, err
	}
	if err := c.checkScripts(c.scriptsOf(call, values)); err != nil {
		return supervisor.Spec{}, err
	}
	spec := c.spec(call)
	if c.exec != nil {
		err = c.exec.fill(&spec, values)
	} else {
		err = c.fill(&spec, values, call.DryRun)
	}
	if err != nil {
		return supervisor.Spec{}, err
	}
	spec.Command.Env, err = c.environ(call, spec.Command.User, spec.Command.Env)
	return spec, err
}

// scriptsOf returns what a call would execute. What callers of the ad-hoc procedure name is
// theirs to know, unless the policy names it.
func (c *Command) scriptsOf(call Call, values map[string]any) []script {
	switch {
	case call.DryRun:
		return c.dryScripts
	case c.exec == nil:
		return c.scripts
	}
	argv, _ := values["argv"].([]any)
	if len(argv) == 0 || len(c.exec.Commands) == 0 {
		return nil
	}
	name, _ := argv[0].(string)
	return []script{{name, true}}
}

// spec is what no argument has a say in.
func (c *Command) spec(call Call) supervisor.Spec {
	s := supervisor.Spec{
		Key:       supervisor.Key{Job: call.Job, Attempt: call.Attempt},
		Procedure: c.Doc.Name, Command: c.process,
		SilenceTimeout: call.SilenceTimeout, MaxExecTime: call.MaxExecTime, Grace: c.grace,
		Records: c.records, MaxRecord: call.MaxRecord, MaxSpool: call.MaxSpool,
		Result: c.result, Success: slices.Clone(c.success), Leave: c.leave, Private: c.private, PrivateTmp: c.tmp,
	}
	s.Command.Groups, s.Command.Rlimits = slices.Clone(s.Command.Groups), slices.Clone(s.Command.Rlimits)
	if call.DryRun {
		s.Result = supervisor.Result{From: fromExitCode, Max: defaultResult}
		if c.dryJSON {
			s.Result.From = fromLastJSON
		}
	}
	return s
}

// values returns the arguments with the defaults of those that are not there, and the time that the call is the run of.
func (c *Command) values(call Call) (map[string]any, error) {
	got, err := call.Args.Any()
	if err != nil {
		return nil, err
	}
	values, ok := got.(map[string]any)
	if !ok && got != nil {
		return nil, &harp.FieldError{Field: "args", Message: "must be a map"}
	}
	if values == nil {
		values = map[string]any{}
	}
	if p := c.params[fireTime]; p != nil && p.kind == typeTime && !call.FireTime.IsZero() {
		values[fireTime] = call.fireTime()
	}
	for name, p := range c.params {
		v, ok := values[name]
		if !ok && p.value != nil {
			v, ok = p.value, true
			values[name] = v
		}
		if text, isText := v.(string); ok && isText && p.under != "" {
			if err := checkUnder("args."+name, p.under, text); err != nil {
				return nil, err
			}
		}
	}
	return values, c.checkItems(values)
}

// fireTime returns FireTime as commands are told it.
func (c Call) fireTime() string { return c.FireTime.UTC().Format(time.RFC3339) }

// checkItems checks the paths in lists.
func (c *Command) checkItems(values map[string]any) error {
	for name, p := range c.params {
		list, _ := values[name].([]any)
		if p.items == nil || p.items.under == "" {
			continue
		}
		for i, v := range list {
			text, _ := v.(string)
			if err := checkUnder(fmt.Sprintf("args.%s[%d]", name, i), p.items.under, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill fills the placeholders.
func (c *Command) fill(spec *supervisor.Spec, values map[string]any, dry bool) error {
	f := &filler{params: c.params, values: values}
	argv := c.argv
	if dry {
		argv = c.dryRun
	}
	for _, e := range argv {
		words, err := f.element(e)
		if err != nil {
			return err
		}
		spec.Command.Argv = append(spec.Command.Argv, words...)
	}
	for _, s := range c.env {
		words, err := f.element(element{words: []template{slices.Concat(template{{literal: s.name + "="}}, s.value)}})
		if err != nil {
			return err
		}
		spec.Command.Env = append(spec.Command.Env, words...)
	}
	stdin, err := f.stdin(c.stdin)
	spec.Stdin, spec.Secrets = stdin, f.secrets
	return err
}

// filler fills templates with arguments and collects what goes to files.
type filler struct {
	params  map[string]*parameter
	values  map[string]any
	secrets []supervisor.Secret
}

// element returns the elements that one of a template becomes: none if an argument of
// it is not there, and those of each element of the list that is spread in it.
func (f *filler) element(e element) ([]string, error) {
	spread := ""
	for _, t := range e.words {
		for _, p := range t {
			if _, there := f.values[p.name]; p.name != "" && !there {
				return nil, nil
			}
			if p.form == formSpread {
				spread = p.name
			}
		}
	}
	if spread == "" {
		return f.once(e, 0, nil)
	}
	list, ok := f.values[spread].([]any)
	if !ok {
		return nil, &harp.FieldError{Field: "args." + spread, Message: "must be a list"}
	}
	var all []string
	for i, item := range list {
		words, err := f.once(e, i, item)
		if err != nil {
			return nil, err
		}
		all = append(all, words...)
	}
	return all, nil
}

// once fills an element for the one of a list that is at i.
func (f *filler) once(e element, i int, item any) ([]string, error) {
	words := make([]string, len(e.words))
	for n, t := range e.words {
		var (
			text    strings.Builder
			longest string // the argument that is
			most    int
		)
		for _, p := range t {
			field, filled, err := f.part(p, i, item, text.Len() == 0)
			if err != nil {
				return nil, err
			}
			if field != "" && len(filled) >= most {
				longest, most = field, len(filled)
			}
			text.WriteString(filled)
		}
		if text.Len() > maxElement {
			return nil, tooLong(longest, text.Len())
		}
		words[n] = text.String()
	}
	return words, nil
}

// part fills a part of an element, which may be the first that is not empty.
func (f *filler) part(p part, i int, item any, first bool) (field, text string, err error) {
	if p.name == "" {
		return "", p.literal, nil
	}
	field = "args." + p.name
	switch param := f.params[p.name]; p.form {
	case formSpread:
		field = fmt.Sprintf("%s[%d]", field, i)
		text, err = param.items.argument(field, item, first)
	case formFile:
		text, err = f.file(p.name)
	default:
		text, err = param.argument(field, f.values[p.name], first)
	}
	return field, text, err
}

// file puts an argument into a file and returns what stands for its path.
func (f *filler) file(name string) (string, error) {
	content, err := f.params[name].text("args."+name, f.values[name])
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(f.secrets, func(s supervisor.Secret) bool { return s.Name == name }) {
		f.secrets = append(f.secrets, supervisor.Secret{Name: name, Content: []byte(content)})
	}
	return supervisor.SecretPath(name), nil
}

func tooLong(field string, size int) error {
	return &harp.FieldError{Field: field, Message: fmt.Sprintf("must make an element of the command or a variable of at most %d bytes, the most that Linux takes; makes %d", maxElement, size)}
}

// stdin fills what the command reads. Where that may name files it has no other NUL,
// so that no argument can be taken for such a name.
func (f *filler) stdin(t template) ([]byte, error) {
	var (
		all []byte
		nul string // an argument that has one
	)
	for _, p := range t {
		text := p.literal
		var err error
		if v, there := f.values[p.name]; there && p.form == formFile {
			text, err = f.file(p.name)
		} else if there && p.name != "" {
			text, err = f.params[p.name].text("args."+p.name, v)
			if strings.Contains(text, "\x00") {
				nul = p.name
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
	if nul != "" && len(f.secrets) > 0 {
		return nil, &harp.FieldError{Field: "args." + nul, Message: "must not contain NUL"}
	}
	return all, nil
}

// argument returns an argument as it stands in an element or in a variable. first says
// that the element begins with it.
func (p *parameter) argument(field string, v any, first bool) (string, error) {
	text, err := p.text(field, v)
	switch {
	case err != nil:
		return "", err
	case strings.Contains(text, "\x00"):
		return "", &harp.FieldError{Field: field, Message: "must not contain NUL"}
	case first && !p.dash && strings.HasPrefix(text, "-"):
		return "", &harp.FieldError{Field: field, Message: "must not begin with -, which might be taken for an option"}
	}
	return text, nil
}

// text returns an argument as a text: as it is; numbers in decimal, durations as 1m30s,
// and json without needless spaces.
func (p *parameter) text(field string, v any) (string, error) {
	wrong := func(what string) (string, error) {
		return "", &harp.FieldError{Field: field, Message: "must be " + what}
	}
	switch p.kind {
	case typeJSON:
		value, err := harp.NewValue(v)
		if err != nil {
			return wrong("what JSON can hold")
		}
		text, err := value.MarshalJSON()
		return string(text), err
	case typeBool:
		if b, ok := v.(bool); ok {
			return strconv.FormatBool(b), nil
		}
		return wrong("true or false")
	case typeDuration:
		if n, ok := v.(int64); ok {
			return time.Duration(n).String(), nil
		}
		return wrong(duration.Expected)
	case typeInt, typeNumber:
		if text, ok := decimal(v); ok {
			return text, nil
		}
		return wrong("a finite number")
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return wrong("a string")
}

func decimal(v any) (string, bool) {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return "", false
}
