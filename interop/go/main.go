// One process of Apache's Go client, driven from tests/support/go_client.py.
//
// The first argument is what to do; every line of the output is one event, and its fields are separated by tabs.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("fatal")
	names := primitive.NamesrvAddr{os.Args[2]}
	group := os.Args[3]
	switch os.Args[1] {
	case "send":
		send(names, group)
	case "consume":
		consume(names, group, os.Args[4])
	case "transact":
		transact(names, group)
	default:
		panic("unknown command " + os.Args[1])
	}
}

// A line of stdin is a message: topic, body, then name=value of its properties; the answer is its id.
func send(names primitive.NamesrvAddr, group string) {
	options := []producer.Option{producer.WithNameServer(names), producer.WithGroupName(group), producer.WithSendMsgTimeout(20 * time.Second)}
	if key := os.Getenv("PEER_ACCESS_KEY"); key != "" {
		options = append(options, producer.WithCredentials(primitive.Credentials{AccessKey: key, SecretKey: os.Getenv("PEER_SECRET_KEY")}))
	}
	client, err := rocketmq.NewProducer(options...)
	check(err)
	check(client.Start())
	defer client.Shutdown()
	eachMessage(func(message *primitive.Message) {
		result, err := client.SendSync(context.Background(), message)
		if err != nil && os.Getenv("PEER_TELLS_FAILURES") != "" {
			say("failed", strings.ReplaceAll(err.Error(), "\n", " "))
			return
		}
		check(err)
		say("sent", result.MsgID)
	})
}

// Writes the body of every message it gets, until stdin ends.
func consume(names primitive.NamesrvAddr, group string, topic string) {
	client, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(client.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			say("received", string(message.Body))
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(client.Start())
	eachMessage(func(*primitive.Message) {})
	client.Shutdown()
}

// The properties "local" and "check" of a message say how its local transaction ends, and what a broker that asks is told.
type listener struct{}

var states = map[string]primitive.LocalTransactionState{
	"commit": primitive.CommitMessageState, "rollback": primitive.RollbackMessageState, "unknown": primitive.UnknowState,
}

func (listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return states[message.GetProperty("local")]
}

func (listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	say("asked", string(message.Body))
	return states[message.GetProperty("check")]
}

func transact(names primitive.NamesrvAddr, group string) {
	client, err := rocketmq.NewTransactionProducer(listener{}, producer.WithNameServer(names), producer.WithGroupName(group), producer.WithSendMsgTimeout(20*time.Second))
	check(err)
	check(client.Start())
	defer client.Shutdown()
	eachMessage(func(message *primitive.Message) {
		result, err := client.SendMessageInTransaction(context.Background(), message)
		check(err)
		say("sent", result.MsgID)
	})
}

func eachMessage(handle func(*primitive.Message)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		message := primitive.NewMessage(words[0], []byte(words[1]))
		for _, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			if name == "delay" {
				level, err := strconv.Atoi(value)
				check(err)
				message.WithDelayTimeLevel(level)
			} else {
				message.WithProperty(name, value)
			}
		}
		handle(message)
	}
}

func say(words ...string) {
	fmt.Println(strings.Join(words, "\t"))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
