package kernel

// Header names that carry message properties on disk. They are a public
// contract, because readers see exactly what is stored: docs/properties.md is
// the table. Names beginning with "mq." are stripped from what clients send.
const (
	HeaderReserved = "mq." // reserved prefix

	HeaderExchange  = "mq.exchange"   // source exchange; present on every exchange publish
	HeaderRoute     = "mq.rk"         // routing key or topic name, only when it is not the record key
	HeaderQoS       = "mq.qos"        // "0", "1", "2"; absent = 1; empty = not stated
	HeaderExpiresAt = "mq.expires-at" // absolute, milliseconds since 1970, decimal
	HeaderRetain    = "mq.retain"     // "1"
	HeaderOrigin    = "mq.origin"     // client id, on publishes of clients that do not want their own back
	HeaderUTF8      = "mq.utf8"       // "1": the payload is declared to be UTF-8 text
	HeaderTable     = "mq.amqp"       // the typed header table as sent, when text headers would lose something
	HeaderUser      = "mq.user."      // prefix for client headers whose name is reserved here

	HeaderContentType     = "content-type"
	HeaderContentEncoding = "content-encoding"
	HeaderCorrelationID   = "correlation-id"
	HeaderReplyTo         = "reply-to"
	HeaderReplyToTopic    = "x-reply-to-topic" // response topic
	HeaderMessageID       = "message-id"
	HeaderTimestamp       = "timestamp" // seconds since 1970, decimal; only if the client set one
	HeaderPriority        = "priority"
	HeaderType            = "type"
	HeaderAppID           = "app-id"
	HeaderUserID          = "user-id"
	HeaderClusterID       = "cluster-id"
	HeaderKey             = "x-kafka-key" // record key when it is not the address

	// HeaderDedup is a client's header like any other, and its text the message's
	// DedupID.
	HeaderDedup = "x-deduplication-id"
)
