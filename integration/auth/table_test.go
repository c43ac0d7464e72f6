package auth

import (
	"errors"
	"fmt"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
)

// The codes of a refusal.
const (
	refusedAMQP  = 403
	refusedMQTT5 = 0x87
	refusedMQTT3 = 0x80
	refusedTopic = 29
	refusedGroup = 30
	refusedNode  = 31
	missingAMQP  = 404
	missingTopic = 3
)

// row is one act of one user, and the code it gets; 0 is success.
type row struct {
	protocol, user, act, name, key string
	want                           int
}

// The users: conf may make x-*, wr write to it, rd read from it, each nothing
// else; topical may all, but at amq.topic own.* only; none has a row that
// allows nothing.
var rows = []row{
	{"amqp", "conf", "declare exchange", "x-new", "", 0},
	{"amqp", "conf", "declare exchange", "y-new", "", refusedAMQP},
	{"amqp", "wr", "declare exchange", "x-new", "", refusedAMQP},
	{"amqp", "rd", "declare exchange", "x-ex", "", refusedAMQP},
	{"amqp", "rd", "passive exchange", "x-ex", "", 0},
	{"amqp", "none", "passive exchange", "x-ex", "", refusedAMQP},
	{"amqp", "conf", "passive exchange", "x-missing", "", missingAMQP},
	{"amqp", "wr", "delete exchange", "x-new", "", refusedAMQP},
	{"amqp", "conf", "delete exchange", "x-new", "", 0},
	{"amqp", "conf", "declare queue", "x-q2", "", 0},
	{"amqp", "conf", "declare queue", "y-q2", "", refusedAMQP},
	{"amqp", "conf", "declare queue", "", "", refusedAMQP}, // amq.gen-...
	{"amqp", "rd", "declare queue", "x-q", "", refusedAMQP},
	{"amqp", "topical", "declare queue", "", "", 0},
	{"amqp", "conf", "declare dead letters", "x-dl", "x-ex", refusedAMQP}, // reads not from the queue
	{"amqp", "topical", "declare dead letters", "x-dl", "x-ex", 0},
	{"amqp", "wr", "passive queue", "x-q", "", 0},
	{"amqp", "none", "passive queue", "x-q", "", refusedAMQP},
	{"amqp", "wr", "passive queue", "y-q", "", refusedAMQP},
	{"amqp", "rd", "delete queue", "x-q2", "", refusedAMQP},
	{"amqp", "conf", "delete queue", "x-q2", "", 0},
	{"amqp", "conf", "bind", "x-q", "k", refusedAMQP},
	{"amqp", "wr", "bind", "x-q", "k", refusedAMQP}, // reads not from the exchange
	{"amqp", "rd", "bind", "x-q", "k", refusedAMQP},
	{"amqp", "both", "bind", "x-q", "k", 0},
	{"amqp", "both", "unbind", "x-q", "k", 0},
	{"amqp", "rd", "unbind", "x-q", "k", refusedAMQP},
	{"amqp", "topical", "bind topic", "x-q", "own.a", 0},
	{"amqp", "topical", "bind topic", "x-q", "other.a", refusedAMQP},
	{"amqp", "topical", "bind", "x-q", "other.a", 0}, // no topic exchange
	{"amqp", "wr", "publish", "x-ex", "k", 0},
	{"amqp", "rd", "publish", "x-ex", "k", refusedAMQP},
	{"amqp", "wr", "publish", "x-missing", "k", missingAMQP},
	{"amqp", "rd", "publish", "x-missing", "k", refusedAMQP}, // right before existence
	{"amqp", "wr", "publish", "", "x-q", 0},                  // amq.default is among his
	{"amqp", "conf", "publish", "", "x-q", refusedAMQP},
	{"amqp", "topical", "publish", "amq.topic", "own.a", 0},
	{"amqp", "topical", "publish", "amq.topic", "other.a", refusedAMQP},
	{"amqp", "topical", "publish", "x-ex", "other.a", 0},
	{"amqp", "rd", "consume", "x-q", "", 0},
	{"amqp", "wr", "consume", "x-q", "", refusedAMQP},
	{"amqp", "rd", "consume", "y-q", "", refusedAMQP},
	{"amqp", "rd", "consume", "$queue/x-q", "", 0},
	{"amqp", "rd", "consume", "$queue/y-q", "", refusedAMQP},
	{"amqp", "rd", "consume", "$share/g/x-q", "", refusedAMQP}, // its name is all of it
	{"amqp", "rd", "get", "x-q", "", 0},
	{"amqp", "conf", "get", "x-q", "", refusedAMQP},
	{"amqp", "rd", "purge", "x-q", "", 0},
	{"amqp", "wr", "purge", "x-q", "", refusedAMQP},

	{"mqtt5", "wr", "publish", "a/b", "", 0},
	{"mqtt5", "rd", "publish", "a/b", "", refusedMQTT5},
	{"mqtt5", "none", "publish", "a/b", "", refusedMQTT5},
	{"mqtt5", "topical", "publish", "own/a", "", 0},
	{"mqtt5", "topical", "publish", "other/a", "", refusedMQTT5},
	{"mqtt5", "rd", "subscribe", "a/#", "", 0},
	{"mqtt5", "wr", "subscribe", "a/#", "", refusedMQTT5},
	{"mqtt5", "topical", "subscribe", "own/#", "", 0},
	{"mqtt5", "topical", "subscribe", "+/a", "", refusedMQTT5},
	{"mqtt5", "topical", "subscribe", "#", "", refusedMQTT5},
	{"mqtt5", "rd", "subscribe", "x-q", "", 0},            // a queue, which he may read
	{"mqtt5", "rd", "subscribe", "y-q", "", refusedMQTT5}, // and one that he may not
	{"mqtt5", "rd", "subscribe", "$queue/x-q", "", 0},
	{"mqtt5", "rd", "subscribe", "$queue/y-q", "", refusedMQTT5},
	{"mqtt5", "rd", "subscribe", "$share/x-q/x-q", "", 0},
	{"mqtt5", "rd", "subscribe", "$share/g/a/#", "", refusedMQTT5},
	{"mqtt5", "topical", "subscribe", "$share/g/own/#", "", 0},
	{"mqtt5", "topical", "subscribe", "$share/g/other/#", "", refusedMQTT5},
	{"mqtt3", "rd", "subscribe", "a/#", "", 0},
	{"mqtt3", "wr", "subscribe", "a/#", "", refusedMQTT3},
	{"mqtt3", "wr", "publish", "a/b", "", 0},

	{"kafka", "wr", "produce", "x-t", "", 0},
	{"kafka", "rd", "produce", "x-t", "", refusedTopic},
	{"kafka", "wr", "produce", "y-t", "", refusedTopic},
	{"kafka", "rd", "list offsets", "x-t", "", 0},
	{"kafka", "wr", "list offsets", "x-t", "", refusedTopic},
	{"kafka", "rd", "list offsets", "x-missing", "", missingTopic},
	{"kafka", "wr", "list offsets", "x-missing", "", refusedTopic},
	{"kafka", "rd", "fetch", "x-t", "", 0},
	{"kafka", "wr", "fetch", "x-t", "", refusedTopic},
	{"kafka", "conf", "metadata", "x-t", "", 0},
	{"kafka", "none", "metadata", "x-t", "", refusedTopic},
	{"kafka", "conf", "metadata", "y-t", "", refusedTopic},
	{"kafka", "conf", "create", "x-t2", "", 0},
	{"kafka", "wr", "create", "x-t3", "", refusedTopic},
	{"kafka", "conf", "create", "y-t2", "", refusedTopic},
	{"kafka", "rd", "delete", "x-t2", "", refusedTopic},
	{"kafka", "conf", "delete", "x-t2", "", 0},
	{"kafka", "rd", "commit", "x-g", "x-t", 0},
	{"kafka", "rd", "commit", "y-g", "x-t", refusedGroup},
	{"kafka", "rd", "commit", "x-g", "y-t", refusedTopic},
	{"kafka", "wr", "commit", "x-g", "x-t", refusedGroup},
	{"kafka", "rd", "offsets", "x-g", "", 0},
	{"kafka", "wr", "offsets", "x-g", "", refusedGroup},
	{"kafka", "wr", "coordinator", "x-g", "", refusedGroup},
	{"kafka", "wr", "join", "x-g", "", refusedGroup},
	{"kafka", "wr", "describe group", "x-g", "", refusedGroup},
	{"kafka", "wr", "delete group", "x-g", "", refusedGroup},
	{"kafka", "rd", "broker config", "1", "", refusedNode},
}

// setUp makes the users and what the rows act on.
func setUp(t *testing.T, n *node) {
	t.Helper()
	for user, p := range map[string][3]string{
		"conf": {"^x-", "", ""}, "wr": {"", "^(x-.*|amq\\.default|amq\\.topic)$", ""}, "rd": {"", "", "^(x-.*|amq\\.topic)$"},
		"both": {"", "^x-", "^x-"}, "topical": {".*", ".*", ".*"}, "none": {"", "", ""},
	} {
		n.user(t, user)
		n.grant(t, "/", user, p[0], p[1], p[2])
	}
	must(t, n.PutTopicPermission(soon(t), kernel.TopicPermission{Tenant: "/", User: "topical", Exchange: "amq.topic", Write: "^own\\.", Read: "^own\\."}))
	_, ch := n.DialAMQP(t)
	for _, q := range []string{"x-q", "y-q"} {
		harness.Declare(t, ch, q)
	}
	must(t, ch.ExchangeDeclare("x-ex", "direct", true, false, false, false, nil))
	admin := n.openKafka(t, "guest", "guest")
	for _, topic := range []string{"x-t", "y-t"} {
		must(t, admin.ProduceSync(soon(t), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
	}
}

// TestTable acts as every row says, and checks that a refusal hits that act
// alone: the next row of the user goes over the same connection.
func TestTable(t *testing.T) {
	n := start(t, t.TempDir())
	setUp(t, n)
	c := newClients(t, n)
	mqtt := make(map[string]*mqtt5)
	for i, r := range rows {
		t.Run(fmt.Sprintf("%s/%s/%s/%s/%s", r.protocol, r.user, r.act, r.name, r.key), func(t *testing.T) {
			var got int
			switch r.protocol {
			case "amqp":
				got = amqpCode(t, actAMQP(c.channel(r.user), r))
			case "mqtt5":
				if mqtt[r.user] == nil {
					mqtt[r.user] = n.dialMQTT(c.t, "table-"+r.user, r.user)
				}
				got = actMQTT5(t, mqtt[r.user], r)
			case "mqtt3":
				got = actMQTT3(t, n, i, r)
			case "kafka":
				got = int(actKafka(t, n, c.kafka(r.user), r))
			}
			if got != r.want {
				t.Errorf("got code %d, want %d", got, r.want)
			}
		})
	}
}

func actAMQP(ch *amqp.Channel, r row) (err error) {
	defer ch.Close()
	switch r.act {
	case "declare exchange":
		err = ch.ExchangeDeclare(r.name, "direct", true, false, false, false, nil)
	case "passive exchange":
		err = ch.ExchangeDeclarePassive(r.name, "direct", true, false, false, false, nil)
	case "delete exchange":
		err = ch.ExchangeDelete(r.name, false, false)
	case "declare queue":
		_, err = ch.QueueDeclare(r.name, true, false, false, false, nil)
	case "declare dead letters":
		_, err = ch.QueueDeclare(r.name, true, false, false, false, amqp.Table{"x-dead-letter-exchange": r.key})
	case "passive queue":
		_, err = ch.QueueDeclarePassive(r.name, true, false, false, false, nil)
	case "delete queue":
		_, err = ch.QueueDelete(r.name, false, false, false)
	case "bind":
		err = ch.QueueBind(r.name, r.key, "x-ex", false, nil)
	case "unbind":
		err = ch.QueueUnbind(r.name, r.key, "x-ex", nil)
	case "bind topic":
		err = ch.QueueBind(r.name, r.key, "amq.topic", false, nil)
	case "publish":
		err = publishAMQP(ch, r.name, r.key)
	case "consume":
		_, err = ch.Consume(r.name, "", false, false, false, false, nil)
	case "get":
		_, _, err = ch.Get(r.name, true)
	case "purge":
		_, err = ch.QueuePurge(r.name, false)
	default:
		err = errors.New("no such act")
	}
	return err
}

// publishAMQP publishes and waits for the confirm or the end of the channel.
func publishAMQP(ch *amqp.Channel, exchange, key string) error {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	if err := ch.Publish(exchange, key, false, false, amqp.Publishing{Body: []byte("m")}); err != nil {
		return err
	}
	select {
	case c, ok := <-confirms:
		if ok && c.Ack {
			return nil
		}
		return <-closed
	case err := <-closed:
		return err
	}
}

func actMQTT5(t *testing.T, c *mqtt5, r row) int {
	if r.act == "publish" {
		resp, err := c.Publish(soon(t), &paho.Publish{Topic: r.name, QoS: 1, Payload: []byte("m")})
		if resp == nil {
			t.Fatal(err)
		}
		if resp.ReasonCode < 0x80 {
			return 0
		}
		return int(resp.ReasonCode)
	}
	ack, err := c.Subscribe(soon(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: r.name, QoS: 1}}})
	if ack == nil {
		t.Fatal(err)
	}
	if ack.Reasons[0] < 0x80 {
		return 0
	}
	return int(ack.Reasons[0])
}

func actMQTT3(t *testing.T, n *node, i int, r row) int {
	c := n.open311(t, fmt.Sprint("table3-", i), r.user, func(error) {})
	if r.act == "publish" {
		harness.Done(t, c.Publish(r.name, 1, false, "m"))
		return 0
	}
	token := c.Subscribe(r.name, 1, nil)
	token.WaitTimeout(harness.Patience)
	codes, ok := token.(interface{ Result() map[string]byte })
	if !ok {
		t.Fatal("no result")
	}
	if code := codes.Result()[r.name]; code >= 0x80 {
		return int(code)
	}
	return 0
}

func actKafka(t *testing.T, n *node, c *kgo.Client, r row) int16 {
	t.Helper()
	ctx := soon(t)
	one := func(resp kmsg.Response, err error) kmsg.Response {
		t.Helper()
		must(t, err)
		return resp
	}
	switch r.act {
	case "produce":
		// A client of its own: franz-go remembers that a topic was refused.
		err := n.openKafka(t, r.user, r.user).ProduceSync(ctx, &kgo.Record{Topic: r.name, Value: []byte("m")}).FirstErr()
		return kafkaCode(t, err)
	case "list offsets":
		return one(c.Broker(1).Request(ctx, &kmsg.ListOffsetsRequest{ReplicaID: -1, Topics: []kmsg.ListOffsetsRequestTopic{{
			Topic: r.name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: -1}}}}})).(*kmsg.ListOffsetsResponse).
			Topics[0].Partitions[0].ErrorCode
	case "fetch":
		return one(c.Broker(1).Request(ctx, fetchRequest(t, n, r.name, 0))).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode
	case "metadata":
		return one(c.Broker(1).Request(ctx, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: &r.name}}})).(*kmsg.MetadataResponse).
			Topics[0].ErrorCode
	case "create":
		return one(c.Broker(1).Request(ctx, &kmsg.CreateTopicsRequest{TimeoutMillis: 5000, Topics: []kmsg.CreateTopicsRequestTopic{{
			Topic: r.name, NumPartitions: 1, ReplicationFactor: 1}}})).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
	case "delete":
		return one(c.Broker(1).Request(ctx, &kmsg.DeleteTopicsRequest{TimeoutMillis: 5000, TopicNames: []string{r.name},
			Topics: []kmsg.DeleteTopicsRequestTopic{{Topic: &r.name}}})).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode
	case "broker config":
		return one(c.Broker(1).Request(ctx, &kmsg.DescribeConfigsRequest{Resources: []kmsg.DescribeConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: r.name}}})).(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode
	}
	return actGroup(t, n, c, r)
}

func actGroup(t *testing.T, n *node, c *kgo.Client, r row) int16 {
	t.Helper()
	send := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := c.Broker(1).Request(soon(t), req)
		must(t, err)
		return resp
	}
	switch r.act {
	case "commit":
		return send(&kmsg.OffsetCommitRequest{Group: r.name, Generation: -1, Topics: []kmsg.OffsetCommitRequestTopic{{
			Topic: r.key, TopicID: topicID(t, n, r.key), Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1, LeaderEpoch: -1}}}}}).(*kmsg.OffsetCommitResponse).
			Topics[0].Partitions[0].ErrorCode
	case "offsets":
		return send(&kmsg.OffsetFetchRequest{Groups: []kmsg.OffsetFetchRequestGroup{{Group: r.name, MemberEpoch: -1}}}).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode
	case "coordinator":
		return send(&kmsg.FindCoordinatorRequest{CoordinatorKeys: []string{r.name}}).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode
	case "join":
		return send(&kmsg.JoinGroupRequest{Group: r.name, SessionTimeoutMillis: 10000, ProtocolType: "consumer",
			Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range"}}}).(*kmsg.JoinGroupResponse).ErrorCode
	case "describe group":
		return send(&kmsg.DescribeGroupsRequest{Groups: []string{r.name}}).(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode
	case "delete group":
		return send(&kmsg.DeleteGroupsRequest{Groups: []string{r.name}}).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode
	}
	t.Fatal("no such act")
	return 0
}

func fetchRequest(t *testing.T, n *node, topic string, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MaxBytes = 0, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, topicID(t, n, topic)
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes = offset, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// topicID returns the id of a topic, whoever may see it.
func topicID(t *testing.T, n *node, name string) [16]byte {
	t.Helper()
	s, _, err := n.TopicStatus("/", name, kernel.Plain)
	must(t, err)
	return s.ID
}

// kafkaCode returns the code of an error, 0 for none.
func kafkaCode(t *testing.T, err error) int16 {
	t.Helper()
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		t.Fatalf("%v has no code", err)
	}
	return e.Code
}
