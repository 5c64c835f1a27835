package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) notifyCommand() *cobra.Command {
	cmd := group("notify", "Tell people and programs what happens",
		c.notifyListCommand(), c.notifyAddCommand(), c.notifyShowCommand(), c.notifyRemoveCommand(), c.notifyPauseCommand(), c.notifyUnpauseCommand(),
		c.notifyTestCommand(), c.notifyPendingCommand(), c.notifyRetryCommand())
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, " NAME") && sub.Name() != "add" || sub.Name() == "pending" {
			sub.ValidArgsFunction = c.completeNames(sub, notificationWords)
		}
	}
	cmd.Long = `Tell people and programs what happens: a notification posts events to a webhook, or sends
them by mail, as they happen. None is lost: what is not accepted is retried for days. See
harp help notifications.`
	cmd.Example = `  harp notify add failures --on job.failed --webhook https://hooks.example.org/harp --secret harp
  harp notify test failures
  harp notify pending`
	return cmd
}

// notificationWords are the names of notifications.
func notificationWords(ctx context.Context, caller *harp.Caller, _ []string, _ string) (found []word) {
	for s, err := range caller.Notifications().List(ctx) {
		if err != nil {
			break
		}
		found = append(found, word{s.Name, strings.Join(s.On, ", ") + " to " + receiverText(s.To)})
	}
	return found
}

// receiverText is who is told.
func receiverText(r harp.Receiver) string {
	switch {
	case r.Webhook != nil:
		return r.Webhook.URL
	case r.Mail != nil:
		return strings.Join(r.Mail.To, ", ")
	}
	return ""
}

// notifiedText is whether all is told.
func notifiedText(s harp.NotificationStatus) string {
	switch {
	case s.Err != nil:
		return "cannot tell: " + s.Err.Error()
	case s.Pause != nil:
		return "paused"
	case s.Behind:
		return "behind"
	case s.Answer != "":
		return "trying"
	}
	return "ok"
}

func (c *cli) notifyListCommand() *cobra.Command {
	return listCommand(c, "List notifications", notificationListing, func(ctx context.Context, caller *harp.Caller) iter.Seq2[harp.NotificationStatus, error] {
		return caller.Notifications().List(ctx)
	})
}

// notificationListing is a list of notifications as it is printed.
func notificationListing() listing[harp.NotificationStatus] {
	return listing[harp.NotificationStatus]{
		name:   "notifications",
		header: []string{"name", "on", "to", "pending", "given up", "now"},
		row: func(s harp.NotificationStatus) []string {
			return []string{s.Name, strings.Join(s.On, ","), receiverText(s.To), strconv.Itoa(s.Pending), strconv.Itoa(s.GivenUp), notifiedText(s)}
		},
		wider: []string{"sent", "answer", "by"},
		widen: func(s harp.NotificationStatus) []string {
			return []string{strconv.FormatUint(s.Sent, 10), s.Answer, s.By.Name}
		},
		id: func(s harp.NotificationStatus) string { return s.Name },
	}
}

func (c *cli) notifyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a notification",
		Args:  cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			s, err := caller.Notifications().Get(ctx, args[0])
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				return c.printNoun(s)
			}
			c.pairs(c.notificationPairs(s))
			return nil
		}),
	}
}

// notificationPairs are what is to be said of a notification.
func (c *cli) notificationPairs(s harp.NotificationStatus) [][2]string {
	var states []string
	for _, state := range s.States {
		states = append(states, string(state))
	}
	secrets, pause := "", ""
	if s.To.Webhook != nil {
		secrets = strings.Join(s.To.Webhook.Secrets, ", ")
	}
	if p := s.Pause; p != nil {
		pause = "since " + c.clock(p.Since)
		if p.By.Name != "" {
			pause += " by " + p.By.Name
		}
		if p.Reason != "" {
			pause += ": " + p.Reason
		}
	}
	return [][2]string{
		{"name", s.Name},
		{"doc", s.Doc},
		{"on", strings.Join(s.On, ", ")},
		{"procedures", strings.Join(s.Procedures, ", ")},
		{"schedules", strings.Join(s.Schedules, ", ")},
		{"target", s.Target},
		{"states", strings.Join(states, ", ")},
		{"labels", labelText(s.Labels)},
		{"for", limitWords(s.For)},
		{"digest", limitWords(s.Digest)},
		{"include", strings.Join(s.Include, ", ")},
		{"to", receiverText(s.To)},
		{"secrets", secrets},
		{"now", notifiedText(s)},
		{"pause", pause},
		{"pending", strconv.Itoa(s.Pending)},
		{"given up", strconv.Itoa(s.GivenUp)},
		{"away", numberText(s.Away)},
		{"gathered", numberText(s.Gathered)},
		{"sent", strconv.FormatUint(s.Sent, 10)},
		{"tried", c.clock(s.Tried)},
		{"answer", s.Answer},
		{"changed", c.clock(s.Changed)},
		{"by", strings.TrimSpace(s.By.Kind + " " + s.By.Name)},
		{"managed by", s.ManagedBy},
	}
}

// notificationFlags are a notification as flags.
type notificationFlags struct {
	notification    harp.Notification
	states, labels  []string
	length, digest  limit
	webhook         string
	secrets, mail   []string
	replace, dryRun bool
}

func (c *cli) notifyAddCommand() *cobra.Command {
	var f notificationFlags
	cmd := &cobra.Command{
		Use:   "add NAME --on TYPE",
		Short: "Make a notification",
		Long: `Make a notification, which sends events of some types as they happen, from now on, to a
webhook or by mail. Other flags select among these events.

--secret names a file in the folder notifications.secrets of the dispatcher's
configuration. See harp help notifications.`,
		Example: `  harp notify add failures --on job.failed --on 'batch.failed' --webhook https://hooks.example.org/harp --secret harp
  harp notify add away --on host.away --for 10m --target 'role=db' --mail ops@example.org
  harp notify add nightly --on 'schedule.*' --schedule nightly --digest 1h --mail ops@example.org`,
		Args: cobra.ExactArgs(1),
		RunE: c.does(func(ctx context.Context, args []string) error {
			f.notification.Name = args[0]
			if err := f.read(); err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error { return c.addNotification(ctx, caller, &f) })
		}),

		ValidArgsFunction: cobra.NoFileCompletions,
	}
	n, flags := &f.notification, cmd.Flags()
	flags.StringArrayVar(&n.On, "on", nil, "`type` of event, or its beginning and *: job.failed, 'batch.*' (repeatable)")
	flags.StringVar(&f.webhook, "webhook", "", "the `URL` to post to")
	flags.StringArrayVar(&f.secrets, "secret", nil, "`name` of the file with the secret to sign with (twice while rotating secrets)")
	flags.StringArrayVar(&f.mail, "mail", nil, "the `address` to mail to (repeatable)")
	flags.StringArrayVar(&n.Procedures, "proc", nil, "only for procedures that match this `pattern`: * is any text, ? one character (repeatable)")
	flags.StringArrayVar(&n.Schedules, "schedule", nil, "only for schedules that match this `pattern`, and their runs (repeatable)")
	flags.StringVar(&n.Target, "target", "", "only for hosts that this `target` selects at that time")
	flags.StringArrayVar(&f.states, "state", nil, "only for jobs in this `state` at that time (repeatable)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "only for jobs with this label: `key=value` (repeatable)")
	flags.Var(&f.length, "for", "with --on host.away: notify once a host has been away this long, and again when it is back")
	flags.Var(&f.digest, "digest", "collect the events of this long into one message")
	flags.StringArrayVar(&n.Include, "include", nil, "include `what` of the job: args or result, without secrets (repeatable)")
	flags.StringVar(&n.Doc, "doc", "", "a `text` that describes it")
	flags.BoolVar(&f.replace, "replace", false, "overwrite the notification of this name, if there is one")
	bindDryRun(cmd, &f.dryRun)
	_ = cmd.MarkFlagRequired("on") // fails only for a flag that is not there
	c.completeFlag(cmd, "on", fixed(eventTypes()...))
	c.completeFlag(cmd, "target", listed(c.asksWords(targetWords)))
	c.completeFlag(cmd, "proc", c.asksWords(everyProcedureWords))
	c.completeFlag(cmd, "include", fixed(harp.IncludeArgs, harp.IncludeResult))
	return cmd
}

// read makes a notification of the flags, and checks it.
func (f *notificationFlags) read() error {
	n := &f.notification
	switch {
	case f.webhook == "" && len(f.mail) == 0:
		return invalid("webhook", "give --webhook or --mail")
	case f.webhook != "" && len(f.mail) > 0:
		return invalid("webhook", "cannot be combined with --mail")
	case f.webhook != "":
		n.To.Webhook = &harp.Webhook{URL: f.webhook, Secrets: f.secrets}
	case len(f.secrets) > 0:
		return invalid("secret", "needs --webhook")
	default:
		n.To.Mail = &harp.Mail{To: f.mail}
	}
	for _, s := range f.states {
		n.States = append(n.States, harp.State(s))
	}
	for _, text := range f.labels {
		k, v, ok := strings.Cut(text, "=")
		if !ok {
			return invalid("label", "%q is not key=value", text)
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[k] = v
	}
	n.For, n.Digest = time.Duration(f.length), time.Duration(f.digest)
	if n.Target != "" {
		if err := checkTarget(n.Target); err != nil {
			return err
		}
	}
	return n.Check()
}

// addNotification makes a notification or, for a dry run, says what it would be.
func (c *cli) addNotification(ctx context.Context, caller *harp.Caller, f *notificationFlags) error {
	n := f.notification
	old, err := caller.Notifications().Get(ctx, n.Name)
	switch {
	case err == nil && !f.replace:
		return &existsError{fmt.Sprintf("notification %s already exists (%s to %s); --replace overwrites it", n.Name, strings.Join(old.On, ", "), receiverText(old.To))}
	case err != nil && !errors.Is(err, harp.ErrNotFound):
		return err
	case f.dryRun:
		return c.would(object{{"notification", n}}, "would make notification %s: %s to %s", n.Name, strings.Join(n.On, ", "), receiverText(n.To))
	}
	if err := caller.Notifications().Put(ctx, n); err != nil {
		return noEventType(err, n.On)
	}
	if c.format == formatJSON {
		return c.printObject(object{{"notification", n}})
	}
	c.notice("notification %s: %s to %s; harp notify test %s sends a test", n.Name, strings.Join(n.On, ", "), receiverText(n.To), n.Name)
	return nil
}

// changesNotification is the body of a command that changes the notifications that it is given. The texts say of a name
// what would be done, and what was. check says whether the dispatcher would do it.
func (c *cli) changesNotification(dry *bool, check func(harp.NotificationStatus) error, change func(n *harp.Notifications, ctx context.Context, name string) error, would, done string) func(*cobra.Command, []string) error {
	look := func(ctx context.Context, caller *harp.Caller, name string) error {
		n, err := caller.Notifications().Get(ctx, name)
		if err != nil {
			return err
		}
		return check(n)
	}
	apply := func(ctx context.Context, caller *harp.Caller, name string) error {
		return change(caller.Notifications(), ctx, name)
	}
	return c.changesNamed(dry, look, apply, would, done)
}

// anyNotification is that a change is of any notification, also of one that documents say.
func anyNotification(harp.NotificationStatus) error { return nil }

func (c *cli) notifyRemoveCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Delete notifications with their messages; no more are sent",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.changesNotification(&dry, func(s harp.NotificationStatus) error { return byHand(harp.NotificationDocument, s.Name, s.ManagedBy) },
			(*harp.Notifications).Delete, "would delete notification %s", "deleted notification %s"),
	}
	bindDryRun(cmd, &dry)
	return cmd
}

func (c *cli) notifyPauseCommand() *cobra.Command {
	var dry bool
	var reason string
	cmd := &cobra.Command{
		Use:   "pause NAME...",
		Short: "Send nothing for a notification until it is unpaused",
		Long: `Send nothing for a notification until it is unpaused. What happens meanwhile is sent
afterwards: messages wait, and beyond 1,000 of them the notification processes events later.`,
		Args: cobra.MinimumNArgs(1),
		RunE: c.changesNotification(&dry, anyNotification, func(n *harp.Notifications, ctx context.Context, name string) error { return n.Pause(ctx, name, reason) },
			"would pause notification %s", "paused notification %s"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "a `text` that says why")
	bindDryRun(cmd, &dry)
	return cmd
}

func (c *cli) notifyUnpauseCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "unpause NAME...",
		Short: "Let paused notifications send again",
		Args:  cobra.MinimumNArgs(1),
		RunE:  c.changesNotification(&dry, anyNotification, (*harp.Notifications).Unpause, "would unpause notification %s", "unpaused notification %s"),
	}
	bindDryRun(cmd, &dry)
	return cmd
}

// untakenError says that a receiver did not take a test.
func untakenError(name, answer string) error {
	return &exitOneError{fmt.Sprintf("the receiver of notification %s did not take the test: %s", name, answer)}
}

func (c *cli) notifyTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test to the receiver of a notification now",
		Long: `Send one message of type test to the receiver of a notification now, even if it is paused.
The exit code is 0 if it was accepted, otherwise 1, and the receiver's answer is printed.`,
		Args: cobra.ExactArgs(1),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			taken, answer, err := caller.Notifications().Test(ctx, args[0])
			switch {
			case err != nil:
				return err
			case !taken:
				return untakenError(args[0], answer)
			case c.format == formatJSON:
				return c.printObject(object{{"name", args[0]}, {"taken", taken}})
			}
			c.notice("the receiver of notification %s accepted the test", args[0])
			return nil
		}),
	}
}

func (c *cli) notifyPendingCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:         "pending [NAME]",
		Short:       "List messages that were not accepted: those that will be retried, and those given up",
		Args:        cobra.MaximumNArgs(1),
		Annotations: lists(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return showList(ctx, c, watch, c.messageListing(), func(ctx context.Context) ([]harp.MessageStatus, bool, error) {
				messages, err := findMessages(ctx, caller, args)
				return messages, false, err
			})
		}),
	}
	bindWatch(cmd, &watch)
	return cmd
}

// findMessages returns the messages of these notifications that were not accepted; without names those of all.
func findMessages(ctx context.Context, caller *harp.Caller, names []string) ([]harp.MessageStatus, error) {
	named := len(names) > 0
	if !named {
		for n, err := range caller.Notifications().List(ctx) {
			if err != nil {
				return nil, err
			}
			names = append(names, n.Name)
		}
	}
	messages := []harp.MessageStatus{}
	for _, name := range names {
		some, _, err := firstOf(caller.Notifications().Messages(ctx, name), 0)
		if err != nil && (named || !errors.Is(err, harp.ErrNotFound)) { // it was deleted meanwhile
			return nil, err
		}
		messages = append(messages, some...)
	}
	return messages, nil
}

// messageListing is a list of messages as it is printed.
func (c *cli) messageListing() listing[harp.MessageStatus] {
	return listing[harp.MessageStatus]{
		name:   "messages",
		header: []string{"notification", "subject", "tries", "next", "answer"},
		row: func(m harp.MessageStatus) []string {
			next := "given up"
			if !m.GivenUp {
				next = c.clock(m.Due)
			}
			return []string{m.Notification, m.Subject, strconv.Itoa(m.Tries), next, m.Answer}
		},
		wider: []string{"time", "id"},
		widen: func(m harp.MessageStatus) []string { return []string{c.clock(m.Time), m.ID} },
		id:    func(m harp.MessageStatus) string { return m.ID },
	}
}

func (c *cli) notifyRetryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "retry NAME [ID]",
		Short: "Retry messages that wait or were given up, now",
		Long: `Retry messages of a notification now, both those waiting for a retry and those given up: all
of them, or the one with this id, which harp notify pending -o id prints.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			count, err := caller.Notifications().Retry(ctx, args[0], id)
			switch {
			case err != nil:
				return err
			case c.format == formatJSON:
				return c.printObject(object{{"name", args[0]}, {"messages", count}})
			}
			c.notice("retrying %d messages of notification %s now", count, args[0])
			return nil
		}),
	}
}
