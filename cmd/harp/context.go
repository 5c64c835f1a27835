package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/transport"
)

func (c *cli) contextCommand() *cobra.Command {
	ls := &cobra.Command{
		Use:         "ls",
		Short:       "List contexts",
		Args:        cobra.NoArgs,
		Annotations: lists(),
		RunE:        c.inContexts(c.listContexts),
	}
	use := &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Args:  cobra.ExactArgs(1),
		RunE:  c.inContexts(c.useContext),
	}
	rm := &cobra.Command{
		Use:   "rm NAME",
		Short: "Delete a context, but not the files it names",
		Args:  cobra.ExactArgs(1),
		RunE:  c.inContexts(c.removeContext),
	}
	show := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a context, or the current one",
		Args:  cobra.MaximumNArgs(1),
		RunE:  c.inContexts(c.showContext),
	}
	for _, cmd := range []*cobra.Command{use, rm, show} {
		cmd.ValidArgsFunction = c.completeOnly(c.contextWords)
	}
	cmd := group("ctx", "Name dispatchers, and choose which one to use", ls, show, c.contextAddCommand(), use, rm)
	cmd.Long = `Name dispatchers, and choose which one to use. See harp help contexts.`
	return cmd
}

func (c *cli) contextAddCommand() *cobra.Command {
	var use, replace bool
	cmd := &cobra.Command{
		Use:   "add NAME --addr HOST:PORT --cert FILE --key FILE --ca FILE",
		Short: "Name a dispatcher and the certificate to call it with",
		Long: `Name a dispatcher and the certificate to call it with. The files are checked: they must
be valid and belong together. They stay where they are. The first context becomes the
current one.`,
		Example: "  harp ctx add prod --addr harp.example:7440 --cert ada.crt --key ada.key --ca ca.crt --use",
		Args:    cobra.ExactArgs(1),
		RunE: c.inContexts(func(dir contexts.Dir, args []string) error {
			return c.addContext(dir, args[0], use, replace)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&use, "use", false, "make it the current one")
	cmd.Flags().BoolVar(&replace, "replace", false, "overwrite an existing context")
	return cmd
}

// inContexts is does for what needs the folder of the contexts.
func (c *cli) inContexts(fn func(dir contexts.Dir, args []string) error) func(*cobra.Command, []string) error {
	return c.does(func(_ context.Context, args []string) error {
		dir, err := contexts.Find(c.env)
		if err != nil {
			return err
		}
		return fn(dir, args)
	})
}

// namedEntry is a context as it is shown.
type namedEntry struct {
	name    string
	current bool
	at      contexts.Context
	problem string
}

// MarshalJSON writes the context's fields.
func (n namedEntry) MarshalJSON() ([]byte, error) {
	o := object{
		{"name", n.name},
		{"current", n.current},
		{"addr", n.at.Addr},
		{"fleet", n.at.Fleet},
		{"cert", n.at.Cert},
		{"key", n.at.Key},
		{"ca", n.at.CA},
	}
	if n.problem != "" {
		o = append(o, field{"problem", n.problem})
	}
	return o.MarshalJSON()
}

func (c *cli) listContexts(dir contexts.Dir, _ []string) error {
	names, err := dir.Names()
	if err != nil {
		return err
	}
	current, err := c.currentContext(dir)
	if err != nil {
		return err
	}
	all := make([]namedEntry, len(names))
	for i, name := range names {
		all[i] = namedEntry{name: name, current: name == current}
		if all[i].at, err = dir.Get(name); err != nil {
			all[i].problem = err.Error() // of one; the others can be read
		}
	}
	return printList(c, listing[namedEntry]{
		name:   "contexts",
		header: []string{"name", "current", "addr", "fleet", "problem"},
		row: func(n namedEntry) []string {
			return []string{n.name, yes(n.current), n.at.Addr, n.at.Fleet, n.problem}
		},
		id: func(n namedEntry) string { return n.name },
	}, all)
}

// currentContext is the name of the context that a command without flags asks.
func (c *cli) currentContext(dir contexts.Dir) (string, error) {
	if name := cmp.Or(c.connection.context, c.env("HARP_CONTEXT")); name != "" {
		return name, nil
	}
	return dir.Current()
}

func (c *cli) showContext(dir contexts.Dir, args []string) error {
	current, err := c.currentContext(dir)
	if err != nil {
		return err
	}
	name := current
	if len(args) > 0 {
		name = args[0]
	}
	if name == "" {
		return plainInvalid("context", "no current context; see harp ctx use")
	}
	at, err := dir.Get(name)
	if err != nil {
		return err
	}
	n := namedEntry{name: name, current: name == current, at: at}
	if c.format == formatJSON {
		return c.printNoun(n)
	}
	c.pairs([][2]string{
		{"name", n.name},
		{"current", yes(n.current)},
		{"addr", at.Addr},
		{"fleet", at.Fleet},
		{"cert", at.Cert},
		{"key", at.Key},
		{"ca", at.CA},
		{"file", dir.Path(name)},
	})
	return nil
}

// addContext writes a context made of the flags that say which dispatcher to ask.
func (c *cli) addContext(dir contexts.Dir, name string, use, replace bool) error {
	there, err := dir.Has(name)
	if err != nil {
		return err
	}
	if there && !replace {
		return invalid("context", "%s exists; --replace overwrites it", name)
	}
	at := contexts.Context{Addr: c.connection.addr, Cert: c.connection.cert, Key: c.connection.key, CA: c.connection.ca}
	if at.Addr == "" || at.Cert == "" || at.Key == "" || at.CA == "" {
		return plainInvalid("context", "a context needs --addr, --cert, --key and --ca")
	}
	for _, file := range []struct {
		flag string
		path *string
	}{{"cert", &at.Cert}, {"key", &at.Key}, {"ca", &at.CA}} {
		if *file.path, err = filepath.Abs(*file.path); err != nil {
			return err
		}
		if _, err := os.Stat(*file.path); err != nil {
			return invalid(file.flag, "%s", err)
		}
	}
	id, err := callerIdentity(at, time.Now())
	if err != nil {
		return err
	}
	at.Fleet = id.Fleet
	current, err := dir.Current()
	if err != nil {
		return err
	}
	if err := dir.Put(name, at); err != nil {
		return err
	}
	if !use && current != "" {
		c.notice("added context %s; harp ctx use %s makes it the current one", name, name)
		return nil
	}
	return c.useContext(dir, []string{name})
}

// callerIdentity reads a context's files and says whose certificate it is, if a dispatcher
// may let it in now. Errors: harp.ErrInvalid.
func callerIdentity(at contexts.Context, now time.Time) (transport.Identity, error) {
	tc, err := loadTLS(at)
	if err != nil {
		return transport.Identity{}, err
	}
	id, err := identityFor(tc.Certificates[0].Leaf, transport.RoleCaller)
	if err != nil {
		return id, err
	}
	return id, checkContext(at, tc, now)
}

// identityFor is the identity of a certificate that must be of a role. Errors:
// harp.ErrInvalid.
func identityFor(cert *x509.Certificate, role transport.Role) (transport.Identity, error) {
	id, err := transport.IdentityOf(cert)
	if err != nil {
		return id, invalid("cert", "%s", err)
	}
	if id.Role != role {
		return id, invalid("cert", "is for %s, not for a %s", id, role)
	}
	return id, nil
}

func (c *cli) useContext(dir contexts.Dir, args []string) error {
	if _, err := dir.Get(args[0]); err != nil {
		return err
	}
	before, err := dir.Use(args[0])
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"context", args[0]}, {"before", before}})
	}
	if before != "" && before != args[0] {
		c.notice("the current context is now %s; it was %s", args[0], before)
	} else {
		c.notice("the current context is now %s", args[0])
	}
	return nil
}

func (c *cli) removeContext(dir contexts.Dir, args []string) error {
	current, err := dir.Current()
	if err != nil {
		return err
	}
	if err := dir.Remove(args[0]); err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printObject(object{{"context", args[0]}, {"removed", true}})
	}
	if current == args[0] {
		c.notice("%s was the current context; now there is none", args[0])
	}
	return nil
}
