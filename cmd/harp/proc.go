package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) procCommand() *cobra.Command {
	return group("proc", "List procedures, and show their parameters",
		c.procListCommand(),
		&cobra.Command{
			Use:   "show [HOST] PROCEDURE",
			Short: "Show what a procedure does and takes",
			Args:  cobra.RangeArgs(1, 2),
			RunE:  c.asks(c.showProcedure),

			ValidArgsFunction: c.complete(c.asksWords(hostOrProcedureWords), c.asksWords(procedureWords)),
		})
}

// offered is a procedure and the hosts that offer it.
type offered struct {
	doc   harp.ProcedureDoc
	hosts []string
}

// MarshalJSON writes the procedure's fields and its hosts.
func (o offered) MarshalJSON() ([]byte, error) {
	fields, err := fieldsOf(o.doc)
	if err != nil {
		return nil, err
	}
	return append(fields, field{"hosts", o.hosts}).MarshalJSON()
}

func (c *cli) procListCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:         "ls [TARGET]",
		Short:       "List procedures of all hosts, or of those that a target selects",
		Args:        cobra.MaximumNArgs(1),
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return showList(ctx, c, watch, procedureListing(), func(ctx context.Context) ([]offered, bool, error) {
				procedures, err := findOffered(ctx, caller, strings.Join(args, ""), "")
				return procedures, false, err
			})
		}),

		ValidArgsFunction: c.completeOnly(listed(c.asksWords(targetWords))),
	}
	bindWatch(cmd, &watch)
	return cmd
}

// procedureListing is a list of procedures as it is printed.
func procedureListing() listing[offered] {
	return listing[offered]{
		name:   "procedures",
		header: []string{"procedure", "arguments", "summary", "hosts"},
		row: func(p offered) []string {
			return []string{p.doc.Name, synopsis(p.doc), p.doc.Summary, hostsText(p.hosts)}
		},
		id: func(p offered) string { return p.doc.Name },
	}
}

func (c *cli) showProcedure(ctx context.Context, caller *harp.Caller, args []string) error {
	name, host := args[len(args)-1], ""
	if len(args) == 2 {
		host = args[0]
	}
	found, err := findOffered(ctx, caller, host, name)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		all, err := findOffered(ctx, caller, host, "")
		if err != nil {
			return err
		}
		known := make([]string, len(all))
		for i, o := range all {
			known[i] = o.doc.Name
		}
		return noProcedure(name, host, known)
	}
	p := found[0]
	if c.format == formatJSON {
		return c.printNoun(p)
	}
	c.showOffered(p)
	return nil
}

func (c *cli) showOffered(p offered) {
	c.pairs([][2]string{
		{"procedure", p.doc.Name},
		{"summary", p.doc.Summary},
		{"hosts", strings.Join(p.hosts, ", ")},
		{"silence timeout", durationText(p.doc.SilenceTimeout)},
		{"max exec time", durationText(p.doc.MaxExecTime)},
		{"idempotent", yes(p.doc.Idempotent)},
		{"traits", strings.Join(p.doc.Traits, ", ")},
	})
	if p.doc.Doc != "" && p.doc.Doc != p.doc.Summary {
		c.say("")
		doc := p.doc.Doc
		if c.room() > 0 {
			doc = fitProse(doc, c.room())
		}
		for line := range strings.SplitSeq(doc, "\n") {
			c.say("%s", line)
		}
	}
	for _, s := range []struct {
		title  string
		schema json.RawMessage
	}{{"record", p.doc.Record}, {"result", p.doc.Result}} {
		if len(s.schema) > 0 {
			c.say("")
			c.say("%s: %s", s.title, typeText(parseSchema(s.schema)))
		}
	}
	c.showParameters(p)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// synopsis is how a procedure's arguments are written: name= [every=].
func synopsis(doc harp.ProcedureDoc) string {
	required := parseSchema(doc.Args).Required
	words := make([]string, len(doc.Params))
	for i, p := range doc.Params {
		words[i] = p + "="
		if !slices.Contains(required, p) {
			words[i] = "[" + words[i] + "]"
		}
	}
	return strings.Join(words, " ")
}

// hostsText is a few of the hosts' names, and how many there are.
func hostsText(hosts []string) string {
	const shown = 3
	if len(hosts) <= shown {
		return strings.Join(hosts, ", ")
	}
	return strings.Join(hosts[:shown], ", ") + ", and " + numberText(len(hosts)-shown) + " more"
}

// findOffered finds the procedures of one host or of all, by name; only the one
// called name unless it is empty. Where hosts offer different procedures under one
// name, it is one of them that is described.
func findOffered(ctx context.Context, caller *harp.Caller, host, name string) ([]offered, error) {
	byName := map[string]*offered{}
	for h, err := range caller.Hosts().List(ctx, host) {
		if err != nil {
			return nil, noHost(ctx, caller, err, host)
		}
		if err := describe(ctx, caller, byName, h, name); err != nil {
			return nil, err
		}
	}
	found := make([]offered, 0, len(byName))
	for _, n := range slices.Sorted(maps.Keys(byName)) {
		found = append(found, *byName[n])
	}
	return found, nil
}

// describe adds a host's procedures to byName. It asks the host's only if one of
// them is not described yet.
func describe(ctx context.Context, caller *harp.Caller, byName map[string]*offered, h harp.HostStatus, name string) error {
	missing := false
	for _, n := range h.Procedures {
		if name != "" && n != name {
			continue
		}
		if byName[n] == nil {
			missing = true
			byName[n] = &offered{doc: harp.ProcedureDoc{Name: n}}
		}
		byName[n].hosts = append(byName[n].hosts, h.Name)
	}
	if !missing {
		return nil
	}
	docs, err := caller.Hosts().Procedures(ctx, h.Name)
	if err != nil && !errors.Is(err, harp.ErrNotFound) {
		return err
	}
	for _, doc := range docs {
		if o := byName[doc.Name]; o != nil && len(o.hosts) == 1 {
			o.doc = doc
		}
	}
	return nil
}
