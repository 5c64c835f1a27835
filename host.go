package harp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp/target"
)

// Host is a handle of one host. It is safe for concurrent use.
type Host struct {
	caller *Caller
	name   string
	opts   []Option
}

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// Call submits a call of a procedure and returns its job as soon as the call is
// on the dispatcher's disk; it does not wait for the procedure. args is an [Args],
// a struct, a map with string keys, [Pos] or nil. ctx bounds the submission, never
// the job.
//
// Errors: ErrInvalid (a field, or arguments that do not fit the procedure's
// schema), ErrNotFound (the host is not known, or has said that it has no such
// procedure), ErrConflict (the id is another request's), ErrPruned (the id is too
// old), ErrUnreachable (FailFast and the host is away), ErrRefused, ErrDenied,
// ErrUnavailable when nothing was sent, and a *CallError, which is ErrUnavailable
// too, when the call may have been accepted.
func (h *Host) Call(ctx context.Context, procedure string, args any, opts ...Option) (*Job, error) {
	req, err := NewRequest(h.name, procedure, args, slices.Concat(h.opts, opts)...)
	if err != nil {
		return nil, WrapCallError(procedure, h.name, err)
	}
	return submitRequest(ctx, h.caller.service, req, nil)
}

// WrapCallError returns the error of a call of a procedure on a host with what it was about
// in its text, and whether the procedure ran. [Host.Call] returns its errors like this.
func WrapCallError(procedure, host string, err error) error {
	return &callFailedError{procedure: procedure, host: host, err: err}
}

// callFailedError says in one line which call failed, why, whether it ran, and as which
// job, or batch.
type callFailedError struct {
	procedure, host, id string
	isBatch             bool
	err                 error
}

func (e *callFailedError) Error() string {
	cause := e.err
	var call *CallError
	if errors.As(cause, &call) {
		cause = call.Err // its id is said below
	}
	text := "call " + e.procedure + " on " + e.host + ": " +
		withoutPrefix(strings.TrimPrefix(cause.Error(), e.host+": ")) + "; " + ranWords(RanOf(e.err))
	switch {
	case e.id != "" && e.isBatch:
		text += "; batch " + e.id
	case e.id != "":
		text += "; job " + e.id
	}
	return text
}

func (e *callFailedError) Unwrap() error { return e.err }

// SaysWhetherItRan tells its text apart from those of errors to which that is still to be added.
func (e *callFailedError) SaysWhetherItRan() {}

// Hosts looks at the hosts a dispatcher knows, and removes them.
type Hosts struct{ service Service }

// List yields the hosts that a target selects, by name; all if it is empty. A target is a
// name, or an expression as [target.Parse] reads it. Errors: ErrInvalid (target),
// ErrNotFound (a host that is written out in it is not known, or it selects none),
// ErrUnavailable, ErrClosed.
func (h *Hosts) List(ctx context.Context, expr string) iter.Seq2[HostStatus, error] {
	return pages(func(cursor string) (Page[HostStatus], error) { return h.service.ListHosts(ctx, expr, cursor) })
}

// Get returns one host. Errors: ErrInvalid (no name), ErrNotFound, ErrUnavailable,
// ErrClosed.
func (h *Hosts) Get(ctx context.Context, name string) (HostStatus, error) {
	if name == "" {
		return HostStatus{}, &FieldError{Field: "host", Message: "must not be empty"}
	}
	for host, err := range h.List(ctx, target.QuoteName(name)) {
		return host, err
	}
	return HostStatus{}, notFoundError("host", name)
}

// Label gives the hosts that a target selects labels, and takes away those of these keys that
// it has given before. It returns how many hosts the target selects. A label of an operator
// counts more than that of the same key of the registry, and that more than one of the host's
// agent; it stays through what these say. A host has at most MaxLabels of them. Each host is
// labelled whole, but more than some hundreds are labelled some at a time: meanwhile, after an error that says
// how many were, and after ErrUnavailable and ErrClosed, some may be and others not. The same again finishes it; where the
// target goes by the labels that change, it then selects, and counts, those that are left.
// Errors, when nothing is changed: ErrInvalid (target; labels: one is too long, set and unset,
// or a host would have too many), ErrNotFound (as List), ErrRefused unless it says how many were.
func (h *Hosts) Label(ctx context.Context, expr string, set map[string]string, unset ...string) (int, error) {
	if expr == "" {
		return 0, errNoTarget
	}
	if err := CheckLabelChange(set, unset); err != nil {
		return 0, err
	}
	return h.service.LabelHosts(ctx, NewID(), expr, set, unset)
}

// Procedures returns what the host's agent last said it offers, by name. Errors:
// ErrNotFound, ErrUnavailable, ErrClosed.
func (h *Hosts) Procedures(ctx context.Context, host string) ([]ProcedureDoc, error) {
	var docs []ProcedureDoc
	for doc, err := range pages(func(cursor string) (Page[ProcedureDoc], error) {
		return h.service.HostProcedures(ctx, host, cursor)
	}) {
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// Remove makes the dispatcher forget a host that is gone for good, and end what has not
// ended on it: queued jobs are cancelled, and others, of which nothing can be known any more, are
// lost, both with the reason [LostHostRemoved]. No job is retried. It returns how many jobs
// it ended. If its agent connects again it is a new host.
// Errors: ErrInvalid (no name), ErrNotFound, ErrConflict (its agent is connected, or the hosts
// registry lists it: stop the agent, or take it out of the registry first), ErrUnavailable,
// ErrClosed.
func (h *Hosts) Remove(ctx context.Context, name string) (int, error) {
	if name == "" {
		return 0, &FieldError{Field: "host", Message: "must not be empty"}
	}
	return h.service.RemoveHost(ctx, NewID(), name)
}

// Ping asks the agents of the hosts that a target selects whether they are there, thousands at
// once, and yields of each host, by name, whether it answered within 3 s. Nothing is called.
// Errors: ErrInvalid (target), ErrNotFound (as List), ErrUnavailable, ErrClosed.
func (h *Hosts) Ping(ctx context.Context, expr string) iter.Seq2[HostPing, error] {
	if expr == "" {
		return func(yield func(HostPing, error) bool) { yield(HostPing{}, errNoTarget) }
	}
	return pages(func(cursor string) (Page[HostPing], error) { return h.service.PingHosts(ctx, expr, cursor) })
}

// Refresh makes the dispatcher read its hosts registry now and returns how many
// hosts it has. Errors: ErrRefused when it has no registry, ErrUnavailable when
// the registry could not be read (the old one is kept).
func (h *Hosts) Refresh(ctx context.Context) (int, error) { return h.service.RefreshHosts(ctx) }

// notFoundError returns an ErrNotFound that names what is not there.
func notFoundError(what, name string) error {
	f := newFailure("not_found", fmt.Sprintf("no such %s: %s", what, name))
	f.Type = what
	return f.Err()
}

// HostStatus is what a dispatcher knows of a host.
type HostStatus struct {
	Name         string                 `json:"name" msgpack:"name"`                                  // as callers name it
	Online       bool                   `json:"online" msgpack:"online,omitempty"`                    // a session with its agent is open and reconciled
	Address      string                 `json:"address,omitempty" msgpack:"addr,omitempty"`           // where the dispatcher dials it; empty if it dials in
	Labels       map[string]string      `json:"labels,omitempty" msgpack:"labels,omitempty"`          // those that count
	LabelSources map[string]LabelSource `json:"label_sources,omitempty" msgpack:"labelsrc,omitempty"` // of each label
	Facts        Value                  `json:"facts,omitzero" msgpack:"facts,omitempty"`             // a map, reported by the agent
	Procedures   []string               `json:"procedures,omitempty" msgpack:"procs,omitempty"`       // names of what it offers, sorted
	LastHeard    time.Time              `json:"last_heard,omitzero" msgpack:"heard,omitempty"`        // UTC; zero if never
	Software     string                 `json:"software,omitempty" msgpack:"software,omitempty"`      // the agent's name and version
	Error        string                 `json:"error,omitempty" msgpack:"error,omitempty"`            // why the dispatcher could not reach it, the last time it tried
	Pause        *HostPause             `json:"pause,omitempty" msgpack:"pause,omitempty"`            // nil: it is not paused
	Drift        []DriftStatus          `json:"drift,omitempty" msgpack:"drift,omitempty"`            // its marks, by name; none under a name: it was never checked
	Problems     []HostProblem          `json:"problems,omitempty" msgpack:"problems,omitempty"`      // what its agent last said is wrong, and what the dispatcher sees
}

// HostProblem is something that is wrong with a host while it can be called, or was when it was
// heard last.
type HostProblem struct {
	Code string `json:"code" msgpack:"code"` // of these, or a later one
	Text string `json:"text" msgpack:"text"`
}

// The codes of problems.
const (
	ProblemProcedures  = "procedures"  // files that declare procedures are invalid; the procedures before them stay
	ProblemCertificate = "certificate" // the agent's expires within two weeks, or has
	ProblemFacts       = "facts"       // the agent cannot tell facts
	ProblemDuplicate   = "duplicate"   // another agent with its name was refused within the last minute
)

// HostPing says whether a host's agent answered when it was asked.
type HostPing struct {
	Host      string        `json:"host" msgpack:"host"`
	Online    bool          `json:"online" msgpack:"online,omitempty"`             // a session with its agent was open; else it could not be asked
	Answered  bool          `json:"answered" msgpack:"answered,omitempty"`         // within 3 s
	Took      time.Duration `json:"took,omitempty" msgpack:"took,omitempty"`       // until it did; nanoseconds
	LastHeard time.Time     `json:"last_heard,omitzero" msgpack:"heard,omitempty"` // UTC; zero if never
}

// LabelSource says who gave a host a label. Where several gave one of the same key, that of
// operators counts, else that of the registry.
type LabelSource string

// The sources of labels.
const (
	LabelOfOperator LabelSource = "operator" // [Hosts.Label]
	LabelOfRegistry LabelSource = "registry"
	LabelOfAgent    LabelSource = "agent"
)

// ProcedureDoc describes a procedure that an agent offers.
type ProcedureDoc struct {
	Name           string          `json:"name" msgpack:"name"`
	Summary        string          `json:"summary" msgpack:"sum,omitempty"`
	Doc            string          `json:"doc,omitempty" msgpack:"doc,omitempty"`
	Params         []string        `json:"params" msgpack:"params,omitempty"`                     // parameter names in the order of positional arguments
	Args           json.RawMessage `json:"args,omitempty" msgpack:"args,omitempty"`               // JSON Schema of the named arguments
	Record         json.RawMessage `json:"record,omitempty" msgpack:"record,omitempty"`           // JSON Schema of a record's value; empty if it streams none
	Result         json.RawMessage `json:"result,omitempty" msgpack:"result,omitempty"`           // JSON Schema of the result
	SilenceTimeout time.Duration   `json:"silence_timeout,omitempty" msgpack:"timeout,omitempty"` // its own limit, default and cap; nanoseconds
	MaxExecTime    time.Duration   `json:"max_exec_time,omitempty" msgpack:"maxexec,omitempty"`
	Streams        bool            `json:"streams" msgpack:"streams,omitempty"`
	Idempotent     bool            `json:"idempotent" msgpack:"idem,omitempty"`
	Traits         []string        `json:"traits,omitempty" msgpack:"traits,omitempty"` // other things it declares of itself: the Trait words, and others
}

// What a procedure may declare of itself beside its limits.
const (
	TraitExclusive  = "exclusive"   // runs once at a time on a host; another call of it waits
	TraitDangerous  = "dangerous"   // is confirmed by a person who calls it by hand
	TraitDryRun     = "dry_run"     // can say what it would do: see [DryRun]
	TraitEndsReboot = "ends_reboot" // succeeds when the machine boots anew
	TraitCommand    = "command"     // runs a command
	TraitReadOnly   = "read_only"   // changes nothing: maintenance windows do not concern it, unless they say so
)
