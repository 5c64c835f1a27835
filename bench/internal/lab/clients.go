package lab

import (
	"context"
	"encoding/json"
)

// Clients says to a Role which clients it is to have.
type Clients struct {
	Addr  string `json:"addr"` // of their server
	Count int    `json:"count"`

	Collector Collector `json:"collector,omitempty"`
}

// RunClients is what such a Role does: it has clients until ctx ends. open connects one,
// and adds what closes it.
func RunClients(ctx context.Context, arg json.RawMessage, ready func(any) error, open func(parts *Closers, addr string) error) error {
	var c Clients
	if err := json.Unmarshal(arg, &c); err != nil {
		return err
	}
	defer c.Collector.Set()()
	var parts Closers
	for range c.Count {
		if err := open(&parts, c.Addr); err != nil {
			return parts.Unless(err)
		}
	}
	if err := ready(nil); err != nil {
		return parts.Unless(err)
	}
	<-ctx.Done()
	return parts.Close()
}
