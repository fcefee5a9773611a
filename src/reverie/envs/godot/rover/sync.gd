extends Node
# The game's end of the godot-rl protocol: the trainer listens, the game connects, answers and plays the actions.
# It comes before the game in each physics frame, and while it waits for a message nothing moves.
# Two words more than others': a reset may carry a `seed`, and `info` tells a time-out by `truncated`.

export(NodePath) var game
export(NodePath) var camera

var stream = StreamPeerTCP.new()
var repeat = 8
var frame = 1  # not at once: shapes are first drawn at the end of the first frame
var playing = false
var drawing = false


func _ready():
	process_priority = -1
	var options = command_line()
	game = get_node(game)
	camera = get_node(camera)
	get_node("../Screen").texture = camera.get_texture()
	if not options.has("port"):
		set_physics_process(false)
		return
	repeat = int(options.get("action_repeat", repeat))
	drawing = options.has("camera")
	if drawing:
		VisualServer.render_loop_enabled = false  # each observation is drawn, and nothing else
		OS.window_size = camera.size  # a larger one takes most of the time where a CPU draws
	join(int(options["port"]))


func _physics_process(_delta):
	if frame % repeat == 0 or game.done():
		exchange()
		frame = 0
	frame += 1


func exchange():
	if playing:
		var outcome = {"type": "step", "obs": [observe()], "reward": [game.reward()]}
		outcome["done"] = [game.done()]
		outcome["info"] = [game.info()]
		send(outcome)
	playing = false
	while not playing:
		var message = receive()
		match message.get("type", "close"):
			"env_info":
				send(spaces())
			"reset":
				game.begin(int(message.get("seed", randi())))
				send({"type": "reset", "obs": [observe()]})
			"action":
				game.act(message["action"][0])
				playing = true
			"close":
				get_tree().quit()
				return


func spaces():
	var shown = game.observation_space()
	if drawing:
		shown["camera_2d"] = {"size": [int(camera.size.y), int(camera.size.x), 3], "space": "box"}
	var told = {"type": "env_info", "n_agents": 1}
	told["observation_space"] = [shown]
	told["action_space"] = [game.action_space()]
	return told


func observe():
	var shown = game.observe()
	if drawing:
		VisualServer.force_draw(false)
		var image = camera.get_texture().get_data()
		image.convert(Image.FORMAT_RGB8)
		shown["camera_2d"] = image.get_data().hex_encode()
	return shown


func join(port):
	stream.connect_to_host("127.0.0.1", port)
	while stream.get_status() == StreamPeerTCP.STATUS_CONNECTING:
		OS.delay_msec(1)
	stream.set_no_delay(true)


func send(message):
	stream.put_utf8_string(JSON.print(message))


func receive():
	# an empty string means that the trainer is gone
	var text = stream.get_utf8_string()
	return JSON.parse(text).result if text else {}


func command_line():
	var found = {}
	for word in OS.get_cmdline_args():
		var halves = word.trim_prefix("--").split("=")
		found[halves[0]] = halves[1] if halves.size() > 1 else ""
	return found
