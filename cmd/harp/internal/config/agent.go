// Package config reads the files that harp's programs are configured by. An error
// names the file, the line and the field.
package config

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/internal/yamlfile"
	"github.com/harpcaller/harp/transport"
)

// Agent is the configuration of harp agent.
type Agent struct {
	Name        string            `yaml:"name"`        // the host's; default and only possible: the certificate's
	Dispatchers []string          `yaml:"dispatchers"` // host:port to dial, and to dial again for ever; several are alternatives
	Listen      string            `yaml:"listen"`      // host:port to be dialled at, by the dispatcher or by direct callers
	TLS         TLS               `yaml:"tls"`
	Dir         string            `yaml:"dir"` // where the agent keeps its journal
	Labels      map[string]string `yaml:"labels"`
	Procedures  string            `yaml:"procedures"` // where the files are that declare commands as procedures
	Exec        *Exec             `yaml:"exec"`       // offer the procedure exec, within these bounds
	Demo        bool              `yaml:"demo"`       // offer the demonstration procedures
	Attempts    int               `yaml:"max_attempts"`
	MaxJournal  yamlfile.Bytes    `yaml:"max_journal"`   // of all attempts
	MaxJobSpool yamlfile.Bytes    `yaml:"max_job_spool"` // of one
	Grace       yamlfile.Duration `yaml:"grace"`
	Log         Log               `yaml:"log"`

	tls *tls.Config
}

// Exec bounds what the procedure exec runs.
type Exec struct {
	User           string            `yaml:"user"`
	Group          string            `yaml:"group"`
	Commands       []string          `yaml:"commands"`
	Dirs           []string          `yaml:"dirs"`
	Env            []string          `yaml:"env"`
	PassEnv        []string          `yaml:"pass_env"`
	SilenceTimeout yamlfile.Duration `yaml:"silence_timeout"`
	MaxExecTime    yamlfile.Duration `yaml:"max_exec_time"`
	Grace          yamlfile.Duration `yaml:"grace"`
	PrivateTmp     bool              `yaml:"private_tmp"`
}

// policy is what it says as the library takes it.
func (e *Exec) policy() *agent.ExecPolicy {
	if e == nil {
		return nil
	}
	return &agent.ExecPolicy{
		User: e.User, Group: e.Group, Commands: e.Commands, Dirs: e.Dirs, Env: e.Env, PassEnv: e.PassEnv,
		SilenceTimeout: time.Duration(e.SilenceTimeout), MaxExecTime: time.Duration(e.MaxExecTime), Grace: time.Duration(e.Grace),
		PrivateTmp: e.PrivateTmp,
	}
}

// ReadAgent reads an agent's file and its certificate, and checks what an agent would not
// take. Errors: *yamlfile.Error, joined if there are several; os's.
func ReadAgent(path string) (*Agent, error) {
	a := &Agent{}
	f, err := yamlfile.Read(path, a)
	if err != nil {
		return nil, err
	}
	a.Dir, a.Procedures = f.Path(a.Dir), f.Path(a.Procedures)
	var wrong []error
	if len(a.Dispatchers) == 0 && a.Listen == "" {
		wrong = append(wrong, f.Errorf("dispatchers", "is missing: say where to dial the dispatcher, or set listen to be dialled"))
	}
	for i, addr := range a.Dispatchers {
		a.Dispatchers[i] = wire.WithPort(addr, wire.DispatcherPort)
	}
	if a.Attempts < 0 {
		wrong = append(wrong, f.Errorf("max_attempts", "must not be negative"))
	}
	var id transport.Identity
	if a.tls, id, err = a.TLS.loadFiles(f, transport.RoleAgent); err != nil {
		wrong = append(wrong, err)
	} else if a.Name != "" && a.Name != id.Name {
		wrong = append(wrong, f.Errorf("name", "is %s, but the certificate is for %s", a.Name, id.Name))
	}
	a.Name = id.Name
	if len(wrong) == 0 {
		wrong = append(wrong, f.Wrap(a.checkRefused()))
	}
	return a, errors.Join(wrong...)
}

// checkRefused is what the library would not take, as bounds of exec that cannot be. The agent
// that it asks keeps nothing and connects to nobody. Errors: *harp.FieldError.
func (a *Agent) checkRefused() error {
	cfg := a.Config()
	cfg.Dir, cfg.Logger = "", slog.New(slog.DiscardHandler)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := agent.New(cfg).Connect(over, "localhost")
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) {
		return err
	}
	field, _, _ := strings.Cut(strings.TrimPrefix(wrong.Field, "limits."), " ")
	if field == "label" {
		field = "labels"
	}
	return &harp.FieldError{Field: field, Message: wrong.Message}
}

// TLSConfig is the certificate with which the agent dials and listens.
func (a *Agent) TLSConfig() *tls.Config { return a.tls }

// Config is the configuration as the library takes it.
func (a *Agent) Config() agent.Config {
	return agent.Config{
		Name: a.Name, Dir: a.Dir, TLS: a.tls, Labels: a.Labels, Exec: a.Exec.policy(),
		Limits: agent.Limits{
			MaxAttempts: a.Attempts, Grace: time.Duration(a.Grace),
			MaxJournal: int64(a.MaxJournal), MaxJobSpool: int64(a.MaxJobSpool),
		},
	}
}
