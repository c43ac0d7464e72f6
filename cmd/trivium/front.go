package main

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/cmd/trivium/config"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// webSlack is how many bytes a WebSocket message may have beside the largest packet.
const webSlack = 64 << 10

// front is one listener.
type front struct {
	config.Socket
	l *listener.Listener
}

// sockets binds listeners with what they share.
type sockets struct {
	config       *config.Config
	log          zerolog.Logger
	node         *listener.Budget
	clients      *listener.Budget // all but HTTP's
	protocols    map[string]*listener.Budget
	unknown      *listener.Addresses
	visitors     *listener.Addresses    // of HTTP
	certificates *listener.Certificates // nil = none
	handshakes   *listener.Handshakes
}

func newSockets(c *config.Config, log zerolog.Logger) (*sockets, error) {
	limit := c.Connections.Max
	if files := connectionBudget(openFiles()); limit == 0 || files > 0 && files < limit {
		limit = files
	}
	share := shareOut(limit, c.Connections.UnknownPerClient)
	s := &sockets{
		config: c, log: log, node: listener.NewBudget(share.node), clients: listener.NewBudget(share.clients),
		unknown: listener.NewAddresses(share.unknown), visitors: listener.NewAddresses(share.unknown),
		handshakes: listener.NewHandshakes(0), protocols: map[string]*listener.Budget{
			"amqp": listener.NewBudget(c.AMQP.MaxConnections), "mqtt": listener.NewBudget(c.MQTT.MaxConnections),
			"kafka": listener.NewBudget(c.Kafka.MaxConnections), "http": listener.NewBudget(c.HTTP.MaxConnections),
		},
	}
	for _, one := range c.Sockets() {
		if one.TLS && !one.Address.Off() && s.certificates == nil {
			var err error
			if s.certificates, err = listener.LoadCertificates(c.TLS.Files()); err != nil {
				return nil, fmt.Errorf("tls: %w", err)
			}
		}
	}
	return s, nil
}

// bind binds one listener.
func (s *sockets) bind(one config.Socket) (*listener.Listener, error) {
	budgets, addresses := s.bounds(one.Protocol)
	opt := listener.Options{
		Budgets: budgets, Addresses: addresses,
		PerSecond: s.config.Connections.PerSecond, HandshakeTimeout: s.config.Connections.HandshakeTimeout,
		OnError: newAcceptLog(s.log.With().Str("listener", one.Name).Logger()).report,
	}
	if one.Proxy != "off" {
		opt.Proxy = &listener.Proxy{Trusted: s.config.Proxy.Trusted, Required: one.Proxy == "required"}
	}
	if one.TLS {
		secure, err := s.secure(one)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		opt.TLS = secure
	}
	if one.Web {
		opt.WebSocket = &listener.WebSocket{
			Path: s.config.MQTT.WSPath, Subprotocols: []string{"mqtt", "mqttv3.1"}, Origins: s.config.MQTT.WSOrigins,
			MaxMessage: int64(s.config.MQTT.MaxPacket) + webSlack,
		}
	}
	l, err := listener.Listen(string(one.Address), opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", one.Name, err)
	}
	return l, nil
}

func (s *sockets) secure(one config.Socket) (*listener.TLS, error) {
	opt := listener.TLSOptions{
		ClientAuth: one.ClientAuth, PeerName: s.config.TLS.PeerName, MinVersion: tls.VersionTLS12, Handshakes: s.handshakes,
	}
	if s.config.TLS.MinVersion == "1.3" {
		opt.MinVersion = tls.VersionTLS13
	}
	return listener.NewTLS(s.certificates, opt)
}

// carrier makes connections of clients of other nodes, within the budgets of this
// one's.
func (s *sockets) carrier(protocol string, open *atomic.Int64) *listener.Carrier {
	budgets, addresses := s.bounds(protocol)
	return &listener.Carrier{Budgets: budgets, Addresses: addresses, Open: open}
}

// bounds are what bounds the connections of a protocol, whichever node they come by.
func (s *sockets) bounds(protocol string) ([]*listener.Budget, *listener.Addresses) {
	budgets := []*listener.Budget{s.node, s.protocols[protocol]}
	if protocol == "http" {
		return budgets, s.visitors
	}
	return append(budgets, s.clients), s.unknown
}
