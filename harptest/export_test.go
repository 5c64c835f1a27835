package harptest

import "github.com/harpcaller/harp/store"

// OnStore returns the options of a system whose dispatcher works on what wrap makes of its store.
func (o Options) OnStore(wrap func(store.Store) store.Store) Options {
	o.wrapStore = wrap
	return o
}
