package harp

import (
	"time"
)

// Notification tells a receiver of events of the feed as they happen. None is lost, whatever dies in between, and a receiver
// that does not answer is tried again for days. A zero field selects all.
type Notification struct {
	Name string `json:"name" msgpack:"name"`                   // 1 to MaxNotificationName bytes, none of them of a control character
	Doc  string `json:"doc,omitempty" msgpack:"doc,omitempty"` // for people

	On         []string          `json:"on" msgpack:"on"`                                   // each a type of event, or the beginning of one and *: "job.failed", "batch.*"; none about notifications
	Procedures []string          `json:"procedures,omitempty" msgpack:"procs,omitempty"`    // of the job; * is any text, ? one character
	Schedules  []string          `json:"schedules,omitempty" msgpack:"schedules,omitempty"` // that it is about, or whose run it is about; as in Procedures
	Target     string            `json:"target,omitempty" msgpack:"target,omitempty"`       // of its host, as [target.Parse] reads it, when it is looked at; one that is removed by then is selected by what asks for more than names
	States     []State           `json:"states,omitempty" msgpack:"states,omitempty"`       // of the job
	Labels     map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`       // of the job
	For        time.Duration     `json:"for,omitempty" msgpack:"for,omitempty"`             // of host.away alone: a host that is away for so long is told of, and when it is back
	Digest     time.Duration     `json:"digest,omitempty" msgpack:"digest,omitempty"`       // what happens within so long is told by one message; 0: each event by one
	Include    []string          `json:"include,omitempty" msgpack:"include,omitempty"`     // "args", "result": of the job, without what is secret; none: neither is told

	To Receiver `json:"to" msgpack:"to"`
}

// Receiver is who is told: exactly one of the fields is set.
type Receiver struct {
	Webhook *Webhook `json:"webhook,omitempty" msgpack:"webhook,omitempty"`
	Mail    *Mail    `json:"mail,omitempty" msgpack:"mail,omitempty"`
}

// Webhook is a URL to which messages are posted, signed as https://www.standardwebhooks.com has it.
type Webhook struct {
	URL     string   `json:"url" msgpack:"url"`         // https, or http where the dispatcher allows the address
	Secrets []string `json:"secrets" msgpack:"secrets"` // names of files in the dispatcher's folder of secrets, each with one whsec_...: one or, while one is replaced, two
}

// Mail is people to whom messages are sent by the dispatcher's mail server.
type Mail struct {
	To []string `json:"to" msgpack:"to"` // addresses, 1 to MaxMailTo
}
