package kernel

// Pin is a record of a share group that is pinned to a session: nobody else gets it
// until the session settles it or ends, whatever becomes of connections and nodes.
type Pin struct {
	PinID
	// Taken says that the session has settled the record, and still needs the
	// number. So it is when the group has gone, which takes its records with it.
	Taken bool

	Group     GroupAddress // zero once it has gone
	Partition int32
	Offset    int64
}

// PinID is what a session calls a pin: a number that it uses again once it has
// freed it, and the count of the use, which rises from pin to pin.
type PinID struct {
	Number uint16
	Count  uint64
}

// Pinner is a Consumer that pins what it gets.
type Pinner interface {
	Consumer
	// Pinned says that records are pinned to the session under these numbers, or with
	// an error that they may not be; Taken, that they are settled and it is known
	// which ones. Called from kernel goroutines, perhaps after Leave, and must not
	// block or call back. The slice is reused.
	Pinned(numbers []uint16, err error)
	Taken(numbers []uint16, err error)
}

// Place is where a record is in a topic.
type Place struct {
	Partition int32
	Offset    int64
}
