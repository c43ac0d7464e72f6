package config

import "time"

// AMQP is the front-end for AMQP 0-9-1.
type AMQP struct {
	Listen         Address       `key:"listen" default:"127.0.0.1:5672" flag:"amqp" about:"AMQP ''host:port''"`
	TLSListen      Address       `key:"tls_listen" default:"off" about:"AMQP over TLS ''host:port'', usually 5671"`
	ProxyProtocol  string        `key:"proxy_protocol" default:"off" choice:"off|optional|required" about:"PROXY header at the beginning of AMQP connections"`
	ClientAuth     string        `key:"client_auth" choice:"|off|request|require" about:"client certificates of AMQP over TLS; empty is tls.client_auth"`
	MaxConnections int           `key:"max_connections" default:"0" min:"0" max:"10000000" about:"AMQP connections open at one time, 0 = no limit of its own"`
	Heartbeat      time.Duration `key:"heartbeat" default:"60s" min:"1s" max:"18h" about:"heartbeat proposed to clients, whole seconds"`
	FrameMax       Bytes         `key:"frame_max" default:"128KiB" min:"8KiB" max:"16MiB" about:"largest frame"`
	ChannelMax     int           `key:"channel_max" default:"2047" min:"1" max:"65535" about:"channels of a connection"`
	BlockedBuffer  Bytes         `key:"blocked_buffer" default:"4MiB" min:"64KiB" about:"publishes kept for a client while an alarm holds them up"`
}

func (a *AMQP) check(p *problems) {
	wholeSeconds(p, "amqp.heartbeat", a.Heartbeat)
}
