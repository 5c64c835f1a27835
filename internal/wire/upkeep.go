package wire

// ForceLost gives up a job of which nothing is known.
type ForceLost struct {
	ID  string `msgpack:"id"`
	Why string `msgpack:"why"`
}

// EventsQuery asks for events after a cursor. With Wait it is answered when there is
// one.
type EventsQuery struct {
	After string   `msgpack:"after,omitempty"` // "" is now, "start" the first that is kept
	Types []string `msgpack:"types,omitempty"`
	Job   string   `msgpack:"job,omitempty"`
	Host  string   `msgpack:"host,omitempty"`
	Wait  bool     `msgpack:"wait,omitempty"`
}

// Events answers EventsQuery. The cursor is where to go on, also without events.
type Events struct {
	Events Rows   `msgpack:"events,omitempty"` // of Event
	Cursor string `msgpack:"cursor"`
}

// Event is one entry of the feed.
type Event struct {
	Cursor    string            `msgpack:"cursor"`
	Time      int64             `msgpack:"time"`
	Type      string            `msgpack:"type"`
	Job       string            `msgpack:"job,omitempty"`
	Host      string            `msgpack:"host,omitempty"`
	Procedure string            `msgpack:"proc,omitempty"`
	Queue     []byte            `msgpack:"queue,omitempty"`
	State     string            `msgpack:"state,omitempty"`
	Reason    string            `msgpack:"reason,omitempty"`
	Attempt   int64             `msgpack:"attempt,omitempty"`
	By        Principal         `msgpack:"by"`
	Labels    map[string]string `msgpack:"labels,omitempty"`
}

// QueueChange changes what is set in it.
type QueueChange struct {
	Request     string `msgpack:"id"` // the same when it is asked again
	Name        []byte `msgpack:"name"`
	Paused      *bool  `msgpack:"paused,omitempty"`
	Concurrency *int64 `msgpack:"conc,omitempty"`
}

// Prune deletes jobs that ended before a time.
type Prune struct {
	EndedBefore int64 `msgpack:"before"`
}

// Chunk is a part of a backup, at most MaxChunk bytes.
type Chunk struct {
	Bytes []byte `msgpack:"b"`
}

// Copied ends a backup, whose chunks came before it: how many bytes they were.
type Copied struct {
	Bytes int64 `msgpack:"bytes"`
}
