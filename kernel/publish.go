package kernel

// Result is the outcome of one publish.
type Result struct {
	// Offset is the record's (or batch's first record's) offset when the
	// publish had exactly one durable target, else -1.
	Offset int64
	// Err is nil when every durable target has the record on a majority of
	// replicas, fsynced. CodeUnknown means it may or may not be there.
	Err error
}

// Completion receives the outcomes of publishes. One value serves many
// publishes; token tells which.
type Completion interface {
	// Completed reports the outcome of the publish made with token, exactly
	// once per accepted publish. It may be called from within the publishing
	// call (nothing durable to wait for) or from a kernel goroutine, one call
	// at a time per placement group but concurrently between groups. It must
	// not block and must not call back into the kernel.
	Completed(token uint64, res Result)
	// Flush follows a run of Completed calls, so that replies may be coalesced.
	Flush()
}

// PublishOptions are the choices a publisher has per message.
type PublishOptions struct {
	// Mandatory publishes are not stored (and get no Completed call) when no
	// target matches; the caller sees matched == 0. It also keeps a publish to
	// the default exchange from creating the queue.
	Mandatory bool
	// Keys are routing keys beyond the record's: each target is reached once.
	Keys []string
	// Fields gives the typed headers. Nil: the record's, as texts.
	Fields Fields
	// ID is what the message is recognised by when it is published again; zero: it is
	// not.
	ID DedupID
}
