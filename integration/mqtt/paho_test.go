package mqtt

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	paho3 "github.com/eclipse/paho.mqtt.golang"

	"github.com/trivium-mq/trivium/integration/harness"
)

// The Eclipse client for 3.1.1: publish and subscribe, and a session that is
// kept.
func TestPaho311(t *testing.T) {
	topic, id := name("t"), name("paho")
	messages := make(chan paho3.Message, 1000)
	client := func(id string, clean bool) paho3.Client {
		return shared.DialMQTT(t, id, func(o *paho3.ClientOptions) {
			o.SetCleanSession(clean).SetUsername("guest").SetPassword("guest").
				SetDefaultPublishHandler(func(_ paho3.Client, m paho3.Message) { messages <- m })
		})
	}
	c := client(id, false)
	harness.Done(t, c.Subscribe(topic+"/#", 2, nil))
	pub := client(name("paho"), true)
	defer pub.Disconnect(100)
	for i := range 200 {
		harness.Done(t, pub.Publish(topic+"/x", byte(i%2), false, fmt.Sprint(i)))
	}
	for i := range 200 {
		m := harness.Receive(t, messages)
		if string(m.Payload()) != fmt.Sprint(i) || m.Qos() != byte(i%2) {
			t.Fatalf("%d: %s QoS %d", i, m.Payload(), m.Qos())
		}
	}
	c.Disconnect(100)
	for i := range 50 {
		harness.Done(t, pub.Publish(topic+"/x", 1, false, fmt.Sprint("away ", i)))
	}
	c = client(id, false)
	for i := range 50 {
		m := harness.Receive(t, messages)
		for m.Duplicate() && !strings.HasPrefix(string(m.Payload()), "away") { // the DISCONNECT was faster than its acknowledgement
			m = harness.Receive(t, messages)
		}
		if string(m.Payload()) != fmt.Sprint("away ", i) {
			t.Fatalf("%d: %s", i, m.Payload())
		}
	}
	harness.Done(t, c.Unsubscribe(topic+"/#"))
	c.Disconnect(100)
}

// The Eclipse client for 5: capabilities, properties, shared subscriptions.
func TestPaho5(t *testing.T) {
	topic := name("t")
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	messages := make(chan *paho.Publish, 1000)
	client := func(cp *paho.Connect) (*paho.Client, *paho.Connack) {
		conn, err := net.Dial("tcp", shared.MQTT)
		must(t, err)
		c := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(m paho.PublishReceived) (bool, error) { messages <- m.Packet; return true, nil }}})
		a, err := c.Connect(ctx, cp)
		must(t, err)
		return c, a
	}
	c, a := client(&paho.Connect{ClientID: name("paho"), KeepAlive: 30, CleanStart: true,
		UsernameFlag: true, Username: "guest", PasswordFlag: true, Password: []byte("guest")})
	if p := a.Properties; p.MaximumQoS != nil || !p.RetainAvailable || !p.SharedSubAvailable || !p.WildcardSubAvailable ||
		!p.SubIDAvailable || *p.ReceiveMaximum != 4096 || *p.MaximumPacketSize != 16<<20 || *p.TopicAliasMaximum != 64 {
		t.Errorf("%+v", p)
	}
	s, err := c.Subscribe(ctx, &paho.Subscribe{Properties: &paho.SubscribeProperties{SubscriptionIdentifier: new(9)},
		Subscriptions: []paho.SubscribeOptions{{Topic: topic, QoS: 2}, {Topic: "$share/g/" + topic, QoS: 1}}})
	must(t, err)
	if s.Reasons[0] != 2 || s.Reasons[1] != 1 {
		t.Errorf("%v", s.Reasons)
	}
	props := &paho.PublishProperties{ContentType: "text/x", CorrelationData: []byte{1}, ResponseTopic: "re",
		User: paho.UserProperties{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}}}
	pub, _ := client(&paho.Connect{ClientID: name("paho"), CleanStart: true})
	r, err := pub.Publish(ctx, &paho.Publish{Topic: topic, QoS: 1, Payload: []byte("x"), Properties: props})
	must(t, err)
	if r.ReasonCode != 0 {
		t.Errorf("PUBACK 0x%02x", r.ReasonCode)
	}
	for range 2 {
		m := harness.Receive(t, messages)
		p := m.Properties
		if m.Topic != topic || m.QoS != 1 || p.ContentType != "text/x" || p.ResponseTopic != "re" || len(p.User) != 2 ||
			p.User[0].Key != "b" || *p.SubscriptionIdentifier != 9 {
			t.Errorf("%+v %+v", m, p)
		}
	}
	if r, err = pub.Publish(ctx, &paho.Publish{Topic: name("nobody"), QoS: 1}); err != nil || r.ReasonCode != 0x10 {
		t.Errorf("%+v %v", r, err)
	}
	must(t, c.Disconnect(&paho.Disconnect{}))
	must(t, pub.Disconnect(&paho.Disconnect{}))
}
