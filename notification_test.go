package harp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestNotificationCheck: what cannot be is refused, and the field is named.
func TestNotificationCheck(t *testing.T) {
	good := func() Notification {
		return Notification{
			Name: "n", On: []string{"job.failed", "batch.*", "*"}, Procedures: []string{"disk.*"}, Schedules: []string{"*"}, States: []State{StateLost, StateQueued},
			Labels: map[string]string{"a": "b"}, Digest: time.Hour, Include: []string{IncludeArgs, IncludeResult},
			To: Receiver{Webhook: &Webhook{URL: "https://example.com", Secrets: []string{"new", "old"}}},
		}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	away := good()
	away.On, away.For = []string{"host.away"}, time.Minute
	if err := away.Check(); err != nil {
		t.Fatal(err)
	}
	mail := func(to ...string) Receiver { return Receiver{Mail: &Mail{To: to}} }
	for field, changes := range map[string][]func(n *Notification){
		"name": {
			func(n *Notification) { n.Name = "" }, func(n *Notification) { n.Name = "a\nb" }, func(n *Notification) { n.Name = strings.Repeat("n", MaxNotificationName+1) },
		},
		"on": {
			func(n *Notification) { n.On = nil }, func(n *Notification) { n.On = []string{"job.*.x"} }, func(n *Notification) { n.On = []string{""} },
			func(n *Notification) { n.On = []string{"job.failed", "notification.failed"} }, func(n *Notification) { n.On = []string{"notification.*"} },
			func(n *Notification) { n.On = make([]string, MaxNotificationPatterns+1) },
		},
		"procedures": {func(n *Notification) { n.Procedures = []string{""} }},
		"schedules":  {func(n *Notification) { n.Schedules = make([]string, MaxNotificationPatterns+1) }},
		"target":     {func(n *Notification) { n.Target = strings.Repeat("x", MaxTarget+1) }},
		"states":     {func(n *Notification) { n.States = []State{"broken"} }, func(n *Notification) { n.States = append(n.States, StateLost) }},
		"labels": {func(n *Notification) {
			n.Labels = map[string]string{}
			for i := range MaxLabels + 1 {
				n.Labels[fmt.Sprint(i)] = ""
			}
		}},
		"include":            {func(n *Notification) { n.Include = []string{"info"} }, func(n *Notification) { n.Include = append(n.Include, IncludeArgs) }},
		"for":                {func(n *Notification) { n.For = time.Minute }, func(n *Notification) { n.On, n.For = []string{"host.away"}, time.Millisecond }, func(n *Notification) { n.On, n.For = []string{"host.*"}, time.Minute }},
		"digest":             {func(n *Notification) { n.Digest = -1 }, func(n *Notification) { n.Digest = MaxNotificationWait + 1 }},
		"to":                 {func(n *Notification) { n.To = Receiver{} }, func(n *Notification) { n.To.Mail = &Mail{To: []string{"a@b"}} }},
		"to.webhook.url":     {func(n *Notification) { n.To.Webhook.URL = "" }},
		"to.webhook.secrets": {func(n *Notification) { n.To.Webhook.Secrets = nil }, func(n *Notification) { n.To.Webhook.Secrets = []string{"a", "b", "c"} }, func(n *Notification) { n.To.Webhook.Secrets = []string{""} }},
		"to.mail.to":         {func(n *Notification) { n.To = mail() }, func(n *Notification) { n.To = mail("") }, func(n *Notification) { n.To = mail(make([]string, MaxMailTo+1)...) }},
	} {
		for i, change := range changes {
			n := good()
			change(&n)
			var wrong *FieldError
			if err := n.Check(); !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s %d: %v", field, i, err)
			}
		}
	}
}
