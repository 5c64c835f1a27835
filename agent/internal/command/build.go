package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// defaultGrace is how long a command has between TERM and KILL.
const defaultGrace = 10 * time.Second

// What a result can have at most, and has if a file does not say: what an agent's own
// limits leave room for.
const (
	resultRoom    = 64 // of its encoding
	defaultResult = harp.MaxResult - resultRoom
	maxResult     = wire.MaxMessage - resultRoom
)

// builder makes a Command of a declaration and notes all that is wrong with it.
type builder struct {
	f     *yamlfile.File
	name  string
	d     *declaration
	wrong []error
	cmd   *Command
	uses  map[string]usage
}

// build checks a declaration. Errors: *yamlfile.Error, all there are.
func build(f *yamlfile.File, name string, d *declaration) (*Command, []error) {
	b := &builder{f: f, name: name, d: d, cmd: &Command{}, uses: map[string]usage{}}
	b.checkName()
	if d == nil {
		return nil, []error{f.Errorf(name, "must be a map that describes the procedure")}
	}
	b.command()
	b.environment()
	b.process()
	b.outcome()
	b.arguments()
	b.describe()
	return b.cmd, b.wrong
}

func (b *builder) errorf(field, format string, a ...any) {
	b.wrong = append(b.wrong, b.f.Errorf(b.name+"."+field, format, a...))
}

func (b *builder) checkName() {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if n := b.name; n == "" || len(n) > harp.MaxProcedureName || !utf8.ValidString(n) || strings.ContainsFunc(n, odd) {
		b.wrong = append(b.wrong, b.f.Errorf(n, "the name must be 1 to %d bytes of UTF-8 without spaces", harp.MaxProcedureName))
	}
}

// command reads what is run.
func (b *builder) command() {
	stdin, err := parseTemplate(b.d.Stdin)
	if err != nil {
		b.errorf("stdin", "%v", err)
	}
	b.cmd.stdin = stdin
	b.cmd.argv, b.cmd.scripts = b.argv("command", b.d.Command)
	if len(b.d.Command) == 0 {
		b.errorf("command", "is missing: must list the program and its arguments")
	}
	if b.d.DryRun != nil && len(b.d.DryRun) == 0 {
		b.errorf("dry_run", "must list a program and its arguments")
	}
	if b.d.DryJSON && b.d.DryRun == nil {
		b.errorf("dry_run_json", "is only for a procedure with dry_run")
	}
	b.cmd.dryRun, b.cmd.dryScripts = b.argv("dry_run", b.d.DryRun)
	b.cmd.dryJSON = b.d.DryJSON
	for _, p := range stdin {
		b.use("stdin", p, usage{stdin: p.form == formText})
	}
}

// argv reads a command, and which files it executes.
func (b *builder) argv(field string, list []*argument) (argv []element, scripts []script) {
	var code interpreted // which reads no further than to the first placeholder that must not be
	for i, a := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if a == nil {
			b.errorf(at, "must be a text")
			continue
		}
		if i == 0 {
			argv = append(argv, b.program(at, a))
			code.next(a.words[:1], false, false)
			continue
		}
		e, spread := element{}, 0
		for j, text := range a.words {
			t := b.word(a.at(at, j), text, true)
			if spread += t.spreads(); spread > 1 {
				b.errorf(a.at(at, j), "must not have a second list: it is repeated for each element of one")
			}
			e.words = append(e.words, t)
		}
		if j, reason := code.next(b.marked(e)); reason != "" {
			b.errorf(a.at(at, j), "must not have a placeholder: %s", reason)
		}
		argv = append(argv, e)
	}
	if program := code.readsStdin(); program != "" && b.hasText(b.cmd.stdin) {
		b.errorf("stdin", "must not have a placeholder: %s reads it as code", program)
	}
	if len(argv) > 0 && len(code.scripts) > 0 {
		code.scripts[0].name = argv[0].words[0][0].literal // where the file says it is
	}
	return argv, code.scripts
}

// marked returns an element as it is read for code, and whether it may be left out, or
// come several times.
func (b *builder) marked(e element) (words []string, optional, repeated bool) {
	for _, t := range e.words {
		var text strings.Builder
		for _, p := range t {
			decl, _ := b.declared(p.name)
			text.WriteString(p.literal)
			text.WriteString(b.mark(p, decl))
			optional = optional || p.name != "" && !decl.Required && decl.Default == nil
			repeated = repeated || p.form == formSpread
		}
		words = append(words, text.String())
	}
	return words, optional, repeated
}

// mark is what stands for a placeholder in a word that is read for code.
func (b *builder) mark(p part, decl *param) string {
	dashed := decl.Dash
	if p.form == formSpread && decl.Items != nil {
		decl, dashed = decl.Items, dashed || decl.Items.Dash
	}
	switch {
	case p.name == "":
		return ""
	case p.form == formFile, len(decl.Enum) > 0, slices.Contains([]string{typeInt, typeNumber, typeBool, typeDuration, typeTime}, decl.kind()):
		return markTame
	case dashed:
		return markDashed
	}
	return markFree
}

// hasText reports whether a text of the caller's may be in what a template becomes.
func (b *builder) hasText(t template) bool {
	words, _, _ := b.marked(element{words: []template{t}})
	return slices.ContainsFunc(words, hasText)
}

// program is the first element. No argument has a say in it.
func (b *builder) program(field string, a *argument) element {
	name := a.words[0]
	switch {
	case a.group || name == "" || strings.Contains(name, "\x00"):
		b.errorf(field, "must be the name of a program")
	case strings.Contains(name, leftBraces):
		b.errorf(field, "must not have a placeholder: callers do not choose what runs")
	}
	if strings.ContainsRune(name, filepath.Separator) {
		name = b.f.Program(name)
	}
	return element{words: []template{{{literal: name}}}}
}

// word reads one element of an argv, or the value of a variable.
func (b *builder) word(field, text string, argv bool) template {
	t, err := parseTemplate(text)
	switch {
	case err != nil:
		b.errorf(field, "%v", err)
	case strings.Contains(text, "\x00"):
		b.errorf(field, "must not contain NUL")
	case len(text) > maxElement:
		b.errorf(field, "must be at most %d bytes, the most that Linux takes in an element", maxElement)
	}
	for _, p := range t {
		b.use(field, p, usage{argv: p.form != formFile, first: argv && p.form != formFile && t.first(p.name)})
	}
	return t
}

// use notes what a placeholder is for, and refuses what its parameter is not for.
func (b *builder) use(field string, p part, u usage) {
	if p.name == "" {
		return
	}
	was := b.uses[p.name]
	b.uses[p.name] = usage{argv: was.argv || u.argv, first: was.first || u.first, stdin: was.stdin || u.stdin}
	decl, known := b.declared(p.name)
	if !known {
		there := "there are no params"
		if len(b.d.Params.order) > 0 {
			there = "available: " + strings.Join(b.d.Params.order, ", ")
		}
		b.errorf(field, "{{.%s}} is not a param; %s", p.name, there)
		return
	}
	switch kind := decl.kind(); {
	case p.form == formFile && kind != typeSecret && kind != typeString && kind != typeJSON:
		b.errorf(field, "{{file .%s}} is for a secret, a string or json; %s is of type %s", p.name, p.name, kind)
	case p.form == formFile:
	case kind == typeSecret && u.argv:
		b.errorf(field, `must not hold a secret, which others could see: use stdin: "{{.%s}}", or {{file .%s}} for the path of a file that holds it`, p.name, p.name)
	case kind == typeList && u.stdin:
		b.errorf(field, "cannot be a list; give %s the type json", p.name)
	case kind == typeList && p.form != formSpread:
		b.errorf(field, "%s is a list, which does not fit in one element; {{.%s...}} repeats the element for each of the list", p.name, p.name)
	case kind != typeList && p.form == formSpread:
		b.errorf(field, "{{.%s...}} is for a list; %s is of type %s", p.name, p.name, kind)
	}
}

// declared returns the declaration of a parameter, or of what takes its place, and whether there is one.
func (b *builder) declared(name string) (*param, bool) {
	decl, known := b.d.Params.byName[name]
	switch {
	case !known && name == fireTime:
		return &param{Type: typeTime}, true
	case decl == nil:
		return &param{}, known
	}
	return decl, true
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environment reads the variables.
func (b *builder) environment() {
	for _, name := range slices.Sorted(maps.Keys(b.d.Env)) {
		field := "env." + name
		t := b.word(field, b.d.Env[name], false)
		switch {
		case !variable.MatchString(name):
			b.errorf(field, "must be the name of a variable")
		case strings.HasPrefix(name, ownPrefix):
			b.errorf(field, "must not begin with %s: those are harp's own", ownPrefix)
		case t.spreads() > 0:
			b.errorf(field, "cannot be a list; use the type json")
		case len(t.names()) > 0 && decides(name):
			b.errorf(field, "must not have a placeholder: %s decides which code runs, and callers do not choose that", name)
		}
		b.cmd.env = append(b.cmd.env, setting{name, t})
	}
	for i, name := range b.d.PassEnv {
		if !variable.MatchString(name) || strings.HasPrefix(name, ownPrefix) {
			b.errorf(fmt.Sprintf("pass_env[%d]", i), "must be the name of a variable other than harp's own, is %q", clip(name))
		}
	}
	b.cmd.passEnv = b.d.PassEnv
}

// process reads how it runs.
func (b *builder) process() {
	d, c := b.d, b.cmd
	for _, fixed := range []struct{ field, value string }{
		{"cwd", d.Cwd},
		{"user", d.User},
		{"group", d.Group},
		{"result.path", d.Result.Path},
	} {
		if strings.Contains(fixed.value, leftBraces) || strings.Contains(fixed.value, "\x00") {
			b.errorf(fixed.field, "must not have a placeholder; they are for command, dry_run, stdin and env")
		}
	}
	rlimits, err := d.rlimits()
	if err != nil {
		b.errorf("rlimits", "%v", err)
	}
	dir := d.Cwd
	switch dir {
	case "":
	case privateCwd:
		dir, c.private = supervisor.PrivateDir, true
	default:
		if dir, err = filepath.Abs(b.f.Path(dir)); err != nil {
			b.errorf("cwd", "%v", err)
		}
	}
	if n := d.Nice; n != nil && (*n < -20 || *n > 19) {
		b.errorf("nice", "must be from -20 (first) to 19, is %d", *n)
	}
	c.process = proc.Spec{
		Dir: dir, User: d.User, Group: d.Group, Groups: d.Groups, Rlimits: rlimits,
		Nice: d.Nice, NoNewPrivileges: d.NoNewPrivileges,
	}
	if d.Umask != nil {
		c.process.Umask = new(int(*d.Umask))
	}
	b.groupLimits()
	b.privateTmp()
	b.limits()
}

// What a command can have at least: it begins in the process that makes itself the command.
const (
	minMemory = 16 << 20
	minPIDs   = 16
	minCPU    = 0.01
	maxCPU    = 1e6

	cpuPeriod = 100_000 // microseconds, of which proc.Limits says how many
)

// groupLimits reads the limits of all its processes together.
func (b *builder) groupLimits() {
	d, l := b.d, &b.cmd.process.Limits
	if m := int64(d.MemoryMax); m != 0 {
		if m < minMemory {
			b.errorf("memory_max", "must be at least 16MiB, which it takes to start")
		}
		l.Memory = m
		b.need("memory_max", "memory")
	}
	if n := d.CPUMax; n != nil {
		if !(*n >= minCPU && *n <= maxCPU) {
			b.errorf("cpu_max", "must be a number of CPUs such as 0.5 or 2, at least %v", minCPU)
		}
		l.CPU = int64(math.Round(*n * cpuPeriod))
		b.need("cpu_max", "cpu")
	}
	if n := d.PIDsMax; n != nil {
		if *n < minPIDs {
			b.errorf("pids_max", "must be at least %d, which it takes to start", minPIDs)
		}
		l.PIDs = *n
		b.need("pids_max", "pids")
	}
}

// need notes a limit that is kept by a controller.
func (b *builder) need(field, controller string) {
	b.cmd.needs = append(b.cmd.needs, need{field, controller})
	if b.d.LeaveRunning {
		b.errorf(field, "cannot be combined with leave_running: what it leaves behind would run without it")
	}
}

// privateTmp reads whether it has a /tmp of its own, where nothing of the machine's is.
func (b *builder) privateTmp() {
	if !b.d.PrivateTmp {
		return
	}
	b.cmd.tmp = true
	b.cmd.needs = append(b.cmd.needs, need{field: "private_tmp"})
	dir := b.cmd.process.Dir
	if inTmp(dir) {
		b.errorf("cwd", "must not be in /tmp or /var/tmp, which are empty with private_tmp; cwd: private gives each job its own folder")
	}
	for _, s := range slices.Concat(b.cmd.scripts, b.cmd.dryScripts) {
		if inTmp(s.name) {
			b.errorf("command", "%s must not be in /tmp or /var/tmp, which are empty with private_tmp", s.name)
		}
	}
	if path := b.d.Result.Path; path != "" && (inTmp(path) || !filepath.IsAbs(path) && inTmp(filepath.Join(dir, path))) {
		b.errorf("result.path", "must not be in /tmp or /var/tmp, which are the command's own with private_tmp; without it HARP_RESULT names a file")
	}
}

// inTmp reports whether a path leads into a folder that private_tmp hides.
func inTmp(path string) bool {
	path = filepath.Clean(path)
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/")
}

func (b *builder) limits() {
	d, c := b.d, b.cmd
	c.grace = defaultGrace
	if d.Grace == yamlfile.Duration(harp.NoLimit) {
		b.errorf("grace", "must be a duration: a command that does not end must be killed at some point")
	} else if d.Grace > 0 {
		c.grace = time.Duration(d.Grace)
	}
	if d.Exclusive {
		c.Concurrency = 1
	}
	if n := d.Concurrency; n != nil {
		if *n < 1 {
			b.errorf("concurrency", "must be at least 1")
		} else if d.Exclusive {
			b.errorf("concurrency", "is 1: use exclusive")
		}
		c.Concurrency = *n
	}
}

// outcome reads what becomes of what it prints and how it ends.
func (b *builder) outcome() {
	d, c := b.d, b.cmd
	c.result = supervisor.Result{From: d.Result.From, Path: d.Result.Path, Max: int(d.Result.Max)}
	if c.result.From == "" {
		c.result.From = fromExitCode
	}
	if !slices.Contains(sources, c.result.From) {
		b.errorf("result.from", "must be one of %s, is %s", strings.Join(sources, ", "), clip(c.result.From))
	}
	switch isFile := c.result.From == fromFile; {
	case !isFile && c.result.Path != "":
		b.errorf("result.path", "is only for from: file")
	case isFile && c.result.Path == "":
		c.private = true
	}
	if d.Result.Max > maxResult {
		b.errorf("result.max", "must be at most %d", maxResult)
	} else if c.result.Max == 0 {
		c.result.Max = defaultResult
	}
	if d.Success != nil && len(d.Success) == 0 {
		b.errorf("success", "must list an exit code, or be left out, which means 0")
	}
	for i, code := range d.Success {
		if code < 0 || code > 255 {
			b.errorf(fmt.Sprintf("success[%d]", i), "must be an exit code from 0 to 255")
		}
	}
	c.success, c.leave = d.Success, d.LeaveRunning
	c.records = supervisor.Splitting(d.Records)
	switch c.records {
	case "":
		c.records = supervisor.SplitLines
	case supervisor.SplitLines, supervisor.SplitJSON, supervisor.SplitRaw:
	default:
		b.errorf("records", "must be one of lines, json, raw, is %s", clip(d.Records))
	}
	if d.Ends != "" && d.Ends != endsReboot {
		b.errorf("ends", "must be %s or left out, is %s", endsReboot, clip(d.Ends))
	}
	c.EndsReboot = d.Ends == endsReboot
	if c.EndsReboot && d.ReadOnly {
		b.errorf("read_only", "cannot be combined with ends: %s", endsReboot)
	}
}

const endsReboot = "reboot"

// privateCwd is the cwd that is a folder of each job's own.
const privateCwd = "private"

var paramName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// arguments reads the parameters, which is what the placeholders are of.
func (b *builder) arguments() {
	all := &jsonschema.Schema{
		Type:                 "object",
		Properties:           map[string]*jsonschema.Schema{},
		PropertyOrder:        b.d.Params.order,
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	b.cmd.params = map[string]*parameter{fireTime: {name: fireTime, kind: typeTime}}
	for _, name := range b.d.Params.order {
		p := b.d.Params.byName[name]
		if p == nil {
			p = &param{}
		}
		use, used := b.uses[name]
		if !paramName.MatchString(name) {
			b.errorf("params."+clip(name), "must be a name of at most 64 letters, digits, _ and -, not beginning with a digit")
			continue
		}
		if !used {
			b.errorf("params."+name, "has no placeholder in command, dry_run, stdin or env, so it would have no effect")
		}
		b.cmd.params[name], all.Properties[name] = b.declare(name, p, use)
		if p.Required {
			all.Required = append(all.Required, name)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		b.errorf("params", "%v", err)
	}
	b.cmd.Doc.Args, b.cmd.Doc.Params = text, b.d.Params.order
}

// describe says what callers are told.
func (b *builder) describe() {
	d, doc := b.d, &b.cmd.Doc
	doc.Name, doc.Summary, doc.Doc = b.name, strings.TrimSpace(d.Summary), strings.TrimSpace(d.Doc)
	doc.SilenceTimeout, doc.MaxExecTime = time.Duration(d.SilenceTimeout), time.Duration(d.MaxExecTime)
	doc.Streams, doc.Idempotent = true, d.Idempotent
	doc.Record, doc.Result = json.RawMessage(`{"type":"string"}`), resultSchema(b.cmd.result.From)
	if b.cmd.records == supervisor.SplitJSON {
		doc.Record = json.RawMessage(`{}`)
	}
	b.cmd.DryRun = len(b.cmd.dryRun) > 0
	for _, trait := range []struct {
		word string
		has  bool
	}{
		{harp.TraitCommand, true},
		{harp.TraitExclusive, d.Exclusive},
		{harp.TraitDangerous, d.Danger},
		{harp.TraitDryRun, b.cmd.DryRun},
		{harp.TraitEndsReboot, b.cmd.EndsReboot},
		{harp.TraitReadOnly, d.ReadOnly},
	} {
		if trait.has {
			doc.Traits = append(doc.Traits, trait.word)
		}
	}
	for i, role := range d.Roles {
		if role == "" || strings.ContainsFunc(role, unicode.IsSpace) {
			b.errorf(fmt.Sprintf("roles[%d]", i), "must be a word")
		}
		doc.Traits = append(doc.Traits, TraitRole+role)
	}
	if len(b.wrong) > 0 {
		return
	}
	if _, err := schema.Compile(*doc); err != nil {
		b.errorf("params", "%s", message(err))
	}
}
