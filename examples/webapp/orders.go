package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"slices"
	"sync"
)

// orders are what the service has been asked for, one a line of a file: the database of this
// example.
type orders struct {
	mu   sync.Mutex // guards the file
	file *os.File
}

// order is a deployment that a user asked for, under the id of its job.
type order struct {
	ID      string `json:"id"`
	User    string `json:"user"`
	Host    string `json:"host"`
	Version string `json:"version"`
	Key     string `json:"key,omitempty"`
	Settled bool   `json:"settled,omitempty"` // it was called, or cannot be: the order of this id is done
}

func openOrders(name string) (*orders, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	return &orders{file: f}, err
}

// note is on disk when it returns.
func (o *orders) note(one order) error {
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return o.file.Sync()
}

// open returns the orders that are not settled; of a line that was being written when the process
// died there is none.
func (o *orders) open() (open []order, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.file.Seek(0, 0); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(o.file)
	for lines.Scan() {
		var one order
		switch {
		case json.Unmarshal(lines.Bytes(), &one) != nil:
		case one.Settled:
			open = slices.DeleteFunc(open, func(o order) bool { return o.ID == one.ID })
		default:
			open = append(open, one)
		}
	}
	return open, lines.Err()
}

// recover calls for the orders of before of which nobody knows whether they were called: under the
// same id a call is made once, however often.
func (a *app) recover(ctx context.Context) error {
	open, err := a.orders.open()
	if err != nil {
		return err
	}
	for _, o := range open {
		job, err := a.call(ctx, o)
		if err != nil {
			log.Printf("order %s: %v", o.ID, err)
			continue
		}
		log.Printf("order %s: is job %s; it was there before: %v", o.ID, job.ID(), job.Existed())
	}
	return nil
}
