package command

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// declaration is a procedure as a file has it.
type declaration struct {
	Summary string      `yaml:"summary"`
	Doc     string      `yaml:"doc"`
	Params  paramList   `yaml:"params"`
	Command []*argument `yaml:"command"`
	DryRun  []*argument `yaml:"dry_run"`
	DryJSON bool        `yaml:"dry_run_json"`

	Stdin   string             `yaml:"stdin"`
	Env     map[string]string  `yaml:"env"`
	PassEnv []string           `yaml:"pass_env"`
	Cwd     string             `yaml:"cwd"`
	User    string             `yaml:"user"`
	Group   string             `yaml:"group"`
	Groups  []string           `yaml:"groups"`
	Umask   *mask              `yaml:"umask"`
	Rlimits map[string]*rlimit `yaml:"rlimits"`
	Nice    *int               `yaml:"nice"`

	NoNewPrivileges bool `yaml:"no_new_privileges"`
	PrivateTmp      bool `yaml:"private_tmp"`

	MemoryMax yamlfile.Bytes `yaml:"memory_max"`
	CPUMax    *float64       `yaml:"cpu_max"`
	PIDsMax   *int64         `yaml:"pids_max"`

	SilenceTimeout yamlfile.Duration `yaml:"silence_timeout"`
	MaxExecTime    yamlfile.Duration `yaml:"max_exec_time"`
	Grace          yamlfile.Duration `yaml:"grace"`
	Exclusive      bool              `yaml:"exclusive"`
	Concurrency    *int              `yaml:"concurrency"`

	Idempotent bool     `yaml:"idempotent"`
	Danger     bool     `yaml:"danger"`
	ReadOnly   bool     `yaml:"read_only"`
	Ends       string   `yaml:"ends"`
	Roles      []string `yaml:"roles"`

	Result       result `yaml:"result"`
	Success      []int  `yaml:"success"`
	Records      string `yaml:"records"`
	LeaveRunning bool   `yaml:"leave_running"`
}

type result struct {
	From string         `yaml:"from"`
	Path string         `yaml:"path"`
	Max  yamlfile.Bytes `yaml:"max"`
}

// param is a parameter as a file has it.
type param struct {
	Type      string   `yaml:"type"`
	Doc       string   `yaml:"doc"`
	Required  bool     `yaml:"required"`
	Default   *literal `yaml:"default"`
	Pattern   string   `yaml:"pattern"`
	Min       *literal `yaml:"min"`
	Max       *literal `yaml:"max"`
	MinLength *int     `yaml:"min_length"`
	MaxLength *int     `yaml:"max_length"`
	Enum      []*word  `yaml:"enum"`
	Items     *param   `yaml:"items"`
	Under     string   `yaml:"under"`
	Dash      bool     `yaml:"dash"`
}

// paramList is a map of parameters that knows their order.
type paramList struct {
	order  []string
	byName map[string]*param
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *paramList) UnmarshalYAML(n *yaml.Node) error {
	if err := n.Load(&l.byName, yaml.WithKnownFields()); err != nil {
		return err
	}
	l.order = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		l.order = append(l.order, n.Content[i].Value)
	}
	return nil
}

// literal is a value that is read when its type is known.
type literal struct{ node *yaml.Node }

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *literal) UnmarshalYAML(n *yaml.Node) error {
	l.node = n
	return nil
}

// word is a text that YAML might take for something else, as in [on, off].
type word string

// UnmarshalYAML implements yaml.Unmarshaler.
func (w *word) UnmarshalYAML(n *yaml.Node) error {
	text, err := textOf(n)
	*w = word(text)
	return err
}

func textOf(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", errors.New("must be a text")
	}
	if n.ShortTag() == "!!binary" {
		return "", errors.New("must be a text, not !!binary")
	}
	return n.Value, nil
}

// argument is an element of a command, or several that belong together.
type argument struct {
	words []string
	group bool
}

// at names the word of an element, which is called field.
func (a *argument) at(field string, word int) string {
	if a.group {
		return fmt.Sprintf("%s[%d]", field, word)
	}
	return field
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *argument) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		text, err := textOf(n)
		a.words = []string{text}
		return err
	}
	a.group = true
	for _, c := range n.Content {
		text, err := textOf(c)
		if err != nil {
			return fmt.Errorf("must be a text, or a list of those that belong together")
		}
		a.words = append(a.words, text)
	}
	if len(a.words) == 0 {
		return errors.New("must not be empty")
	}
	return nil
}

// mask is a umask, in octal.
type mask int

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *mask) UnmarshalYAML(n *yaml.Node) error {
	v, err := strconv.ParseUint(strings.TrimPrefix(n.Value, "0o"), 8, 16)
	if err != nil || v > 0o777 {
		return fmt.Errorf("must be an octal number such as 022, is %q", n.Value)
	}
	*m = mask(v)
	return nil
}

// rlimit is a limit of the kernel: a number for both, or soft and hard.
type rlimit struct {
	Soft amount `yaml:"soft"`
	Hard amount `yaml:"hard"`
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (r *rlimit) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		err := r.Soft.UnmarshalYAML(n)
		r.Hard = r.Soft
		return err
	}
	var both struct{ Soft, Hard *amount }
	if err := n.Load(&both, yaml.WithKnownFields()); err != nil {
		return err
	}
	if both.Soft == nil || both.Hard == nil {
		return errors.New("must be a number, or have soft and hard")
	}
	if *both.Soft > *both.Hard {
		return errors.New("soft must not be more than hard")
	}
	r.Soft, r.Hard = *both.Soft, *both.Hard
	return nil
}

// amount is a number or unlimited.
type amount uint64

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *amount) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "unlimited" {
		*a = math.MaxUint64
		return nil
	}
	if v, err := strconv.ParseUint(n.Value, 10, 64); err == nil {
		*a = amount(v)
		return nil
	}
	var b yamlfile.Bytes
	if err := b.UnmarshalYAML(n); err != nil {
		return fmt.Errorf("must be a number such as 1024, bytes such as 512MiB, or unlimited, is %q", n.Value)
	}
	*a = amount(b) //nolint:gosec // never negative
	return nil
}

// rlimitNames are those of setrlimit(2).
var rlimitNames = []string{
	"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime",
	"sigpending", "stack",
}

func (d *declaration) rlimits() ([]proc.Rlimit, error) {
	var list []proc.Rlimit
	for name, r := range d.Rlimits {
		if !slices.Contains(rlimitNames, name) {
			return nil, fmt.Errorf("%s is unknown; available: %s", clip(name), strings.Join(rlimitNames, ", "))
		}
		if r == nil {
			return nil, fmt.Errorf("%s must be a number, or have soft and hard", name)
		}
		list = append(list, proc.Rlimit{Name: name, Soft: uint64(r.Soft), Hard: uint64(r.Hard)})
	}
	slices.SortFunc(list, func(a, b proc.Rlimit) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
