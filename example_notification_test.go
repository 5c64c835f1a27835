package harp_test

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
)

// pager is a way of its own to tell people: whoever reads from it.
type pager chan notify.Message

// Accepts takes what is for people.
func (p pager) Accepts(r harp.Receiver) bool { return r.Mail != nil }

// Check refuses nobody.
func (p pager) Check(harp.Receiver) error { return nil }

// Send waits until somebody has read the message; otherwise the dispatcher tries it again.
func (p pager) Send(ctx context.Context, _ harp.Receiver, m notify.Message) error {
	select {
	case p <- m:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A notification sends events as they happen. What delivers them is given to the dispatcher: package
// notify has webhooks, notify/mail sends mail.
func ExampleNotifications() {
	messages := make(pager)
	caller, stop := fleetOf(dispatcher.Config{Senders: []notify.Sender{messages}})
	defer stop()
	ctx := context.Background()
	must(caller.Notifications().Put(ctx, harp.Notification{
		Name: "disks", On: []string{"job.failed"}, Procedures: []string{"disk.*"},
		To: harp.Receiver{Mail: &harp.Mail{To: []string{"ops@example.org"}}},
	}))

	_, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"}) // not what it is about
	must(err)
	_, err = caller.Host("web01").Call(ctx, "disk.check", nil)
	must(err)
	m := <-messages
	fmt.Println(m.Type)
	fmt.Println(m.Subject)
	// Output:
	// job.failed
	// job.failed: disk.check on web01
}

// A test says whether the receiver takes messages; a pause keeps them back.
func ExampleNotifications_Test() {
	messages := make(pager, 1)
	caller, stop := fleetOf(dispatcher.Config{Senders: []notify.Sender{messages}})
	defer stop()
	ctx := context.Background()
	notifications := caller.Notifications()
	must(notifications.Put(ctx, harp.Notification{
		Name: "failures", On: []string{"job.failed", "batch.failed"},
		To: harp.Receiver{Mail: &harp.Mail{To: []string{"ops@example.org"}}},
	}))
	must(notifications.Pause(ctx, "failures", "the pager is moved"))

	taken, answer, err := notifications.Test(ctx, "failures")
	must(err)
	fmt.Printf("%v %q\n", taken, answer)
	status, err := notifications.Get(ctx, "failures")
	must(err)
	fmt.Println("paused:", status.Pause.Reason)
	// Output:
	// true ""
	// paused: the pager is moved
}
